// Command probe is what the cluster's own tests run inside pods: a small HTTP server and a few one-shot checks.
//
// It is one static binary, so that its image needs no base and no registry.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	checkTimeout = 3 * time.Second
	usage        = "usage: probe serve [ADDRESS] | fetch URL | resolve NAME | write FILE TEXT | read FILE | sleep"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(":8080")
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 2 && args[0] == "fetch":
		return fetch(args[1])
	case len(args) == 2 && args[0] == "resolve":
		return resolve(args[1])
	case len(args) == 3 && args[0] == "write":
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	case len(args) == 2 && args[0] == "read":
		return read(args[1])
	case len(args) == 1 && args[0] == "sleep":
		untilTold().Wait()
		return nil
	}
	return errors.New(usage)
}

// serve answers every request with the host's name until the process is told to stop.
func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) }
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: checkTimeout}
	go func() {
		untilTold().Wait()
		server.Close()
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// fetch prints the body of url; any status other than 200 is an error.
func fetch(url string) error {
	client := http.Client{Timeout: checkTimeout}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// resolve prints the addresses of a name, separated by spaces.
func resolve(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addresses, " "))
	return nil
}

func read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

// signals is a channel of stop signals that can be waited for.
type signals chan os.Signal

// Wait blocks until SIGINT or SIGTERM arrives.
func (s signals) Wait() { <-s }

// untilTold starts listening for stop signals: pid 1 of a container has no default handler for them.
func untilTold() signals {
	s := make(signals, 1)
	signal.Notify(s, syscall.SIGINT, syscall.SIGTERM)
	return s
}
