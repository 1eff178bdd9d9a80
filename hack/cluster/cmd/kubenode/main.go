// Command kubenode holds etcd, every Kubernetes component and kubectl in one binary.
//
// It is called either through a link named like the component (kubectl -> kubenode) or with the
// component's name as its first argument (kubenode kubelet ...). One binary instead of seven links
// the shared libraries once, which saves minutes of build time and a gigabyte of disk.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const self = "kubenode"

// components maps the name of a component to the builder of its command.
var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	os.Args = componentArgs(os.Args)
	name := os.Args[0]
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	build, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kubenode: no component named %q; known: %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(build()))
}

// componentArgs returns the arguments with the component's bare name in first place.
func componentArgs(args []string) []string {
	name := filepath.Base(args[0])
	if name == self && len(args) > 1 {
		name, args = args[1], args[1:]
	}
	return append([]string{name}, args[1:]...)
}

// names returns every component's name in order.
func names() []string {
	all := []string{"etcd"}
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
