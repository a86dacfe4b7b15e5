// The program in the images of test workloads: it uses as much CPU and memory as it is told to, answers probes, and
// ends at once when asked. It is one static file, so an image of it needs nothing else.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = `workload COMMAND
  pause                    wait until asked to end (the sandbox container)
  sleep DURATION           wait, then end well
  exit CODE                end at once with this code
  load [flags]             use CPU and memory, serve HTTP:
    --cpu 200m             CPU to use
    --memory 100Mi         memory to hold, touched
    --listen :8080         where to serve; empty for nowhere
    --delay 0s             how long until /readyz and /startupz say yes
    GET /healthz /readyz /startupz; POST /load?cpu=300m&memory=200Mi changes the load, GET /load says it`

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		os.Exit(0)
	}()
	if len(os.Args) < 2 {
		fail(fmt.Errorf("no command"))
	}
	arguments := os.Args[2:]
	var err error
	switch os.Args[1] {
	case "pause":
		reap()
	case "sleep":
		err = sleep(arguments)
	case "exit":
		err = exit(arguments)
	case "load":
		err = load(arguments)
	default:
		err = fmt.Errorf("unknown command %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "workload: %v\n%s\n", err, usage)
	os.Exit(64)
}

// reap collects orphans for ever: in a pod that shares its process namespace the sandbox is process 1.
func reap() {
	child := make(chan os.Signal, 1)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
		}
		<-child
	}
}

func sleep(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("sleep takes one duration")
	}
	span, err := time.ParseDuration(arguments[0])
	if err != nil {
		return err
	}
	time.Sleep(span)
	return nil
}

func exit(arguments []string) error {
	var code int
	if len(arguments) != 1 {
		return fmt.Errorf("exit takes one code")
	}
	if _, err := fmt.Sscan(arguments[0], &code); err != nil {
		return err
	}
	os.Exit(code)
	return nil
}

func load(arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	cpu := flags.String("cpu", "0", "")
	memory := flags.String("memory", "0", "")
	listen := flags.String("listen", ":8080", "")
	delay := flags.Duration("delay", 0, "")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	burner := newBurner()
	if err := burner.set(*cpu, *memory); err != nil {
		return err
	}
	if *listen == "" {
		select {}
	}
	begun := time.Now()
	yes := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	later := func(w http.ResponseWriter, r *http.Request) {
		if time.Since(begun) < *delay {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		yes(w, r)
	}
	http.HandleFunc("GET /healthz", yes)
	http.HandleFunc("GET /readyz", later)
	http.HandleFunc("GET /startupz", later)
	http.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, burner.say()) })
	http.HandleFunc("POST /load", func(w http.ResponseWriter, r *http.Request) {
		if err := burner.set(r.FormValue("cpu"), r.FormValue("memory")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, burner.say())
	})
	return http.ListenAndServe(*listen, nil)
}
