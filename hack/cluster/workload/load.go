package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// burner holds memory and keeps processors busy for a share of the time.
type burner struct {
	millis atomic.Int64
	mutex  sync.Mutex
	held   []byte
	// One for each processor ever asked for; they are never ended, only idle.
	workers int
}

// period is how often a worker decides anew: short against a metrics sample, long against a scheduler's slice.
const period = 50 * time.Millisecond

func newBurner() *burner { return &burner{} }

// set changes the load; an empty string leaves that part as it is.
func (b *burner) set(cpu, memory string) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if cpu != "" {
		millis, err := parseCPU(cpu)
		if err != nil {
			return err
		}
		b.millis.Store(millis)
		for b.workers < int((millis+999)/1000) {
			go b.work(int64(b.workers))
			b.workers++
		}
	}
	if memory != "" {
		bytes, err := parseMemory(memory)
		if err != nil {
			return err
		}
		return b.hold(bytes)
	}
	return nil
}

func (b *burner) say() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return fmt.Sprintf("cpu=%dm memory=%d", b.millis.Load(), len(b.held))
}

// work is worker number index: it is busy for the share of a processor that is left after those before it.
func (b *burner) work(index int64) {
	for {
		share := min(max(b.millis.Load()-index*1000, 0), 1000)
		begun := time.Now()
		busy := period * time.Duration(share) / 1000
		for time.Since(begun) < busy {
		}
		time.Sleep(period - busy)
	}
}

// hold maps memory past Go's heap, so that what was asked for is what is used, and is given back when it shrinks.
func (b *burner) hold(bytes int) error {
	if b.held != nil {
		if err := syscall.Munmap(b.held); err != nil {
			return err
		}
		b.held = nil
	}
	if bytes == 0 {
		return nil
	}
	held, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("mapping %d bytes: %w", bytes, err)
	}
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	b.held = held
	return nil
}

func parseCPU(text string) (int64, error) {
	if millis, ok := strings.CutSuffix(text, "m"); ok {
		return natural(millis)
	}
	cores, err := natural(text)
	return cores * 1000, err
}

func parseMemory(text string) (int, error) {
	units := []struct {
		suffix string
		size   int64
	}{{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}}
	for _, unit := range units {
		if number, ok := strings.CutSuffix(text, unit.suffix); ok {
			count, err := natural(number)
			return int(count * unit.size), err
		}
	}
	bytes, err := natural(text)
	return int(bytes), err
}

func natural(text string) (int64, error) {
	number, err := strconv.ParseUint(text, 10, 40)
	if err != nil {
		return 0, fmt.Errorf("%q is not a quantity this program knows", text)
	}
	return int64(number), nil
}
