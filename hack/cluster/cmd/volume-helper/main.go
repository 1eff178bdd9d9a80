// Command volume-helper makes and removes the folders behind local-path volumes.
//
// The provisioner runs it in a pod on the volume's node, with the folder in VOL_DIR and the action in its arguments
// ("-a create" or "-a delete"). Folders get mode 0777 because containers that don't run as root must be able to
// write, and fsGroup doesn't apply to hostPath volumes.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	action := flag.String("a", "", "create or delete")
	flag.String("m", "", "volume mode, unused")
	flag.String("p", "", "path, unused: VOL_DIR holds it")
	flag.String("s", "", "size in bytes, unused: nothing limits it")
	flag.Parse()
	if err := run(*action, os.Getenv("VOL_DIR")); err != nil {
		fmt.Fprintln(os.Stderr, "volume-helper:", err)
		os.Exit(1)
	}
}

func run(action, dir string) error {
	if !filepath.IsAbs(dir) || filepath.Dir(filepath.Clean(dir)) == "/" {
		return fmt.Errorf("VOL_DIR %q is not a folder below another one", dir)
	}
	switch action {
	case "create":
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		return os.Chmod(dir, 0o777) // the umask took bits away
	case "delete":
		return os.RemoveAll(dir)
	}
	return fmt.Errorf("unknown action %q", action)
}
