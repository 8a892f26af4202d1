package main

import (
	"os"
	"os/signal"
	"syscall"
)

// pause is the first process of a Pod: it holds the Pod's namespaces until it gets a signal, and reaps orphaned processes.
func pause() error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	orphans := make(chan os.Signal, 1)
	signal.Notify(orphans, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
			return nil
		case <-orphans:
			bury()
		}
	}
}

func bury() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid == 0 {
			return
		}
	}
}
