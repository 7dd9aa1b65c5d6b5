// franz-go's producer and consumer in the client matrix.
//
//	produce BOOTSTRAP TOPIC PREFIX FILE RATE
//	consume BOOTSTRAP TOPIC GROUP FILE
//
// zkmigrate/lab/clients/__init__.py has the contract, zkmigrate/lab/load/__init__.py the format of the file.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	library        = "github.com/twmb/franz-go"
	valueBytes     = 100
	linger         = 5 * time.Millisecond
	commitEach     = time.Second
	clockMonotonic = 1
)

type fields map[string]any

// lines is the file. Each line is one write, so that a killed process loses none that it wrote.
type lines struct {
	mutex sync.Mutex
	file  *os.File
}

func (l *lines) write(event string, more fields) {
	line := fields{"event": event, "mono_ns": monotonic(), "epoch_ms": time.Now().UnixMilli()}
	for name, value := range more {
		line[name] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}

// monotonic is CLOCK_MONOTONIC in nanoseconds, which other processes of this machine have as well. Go shows its
// own only as differences.
func monotonic() int64 {
	var now syscall.Timespec
	if _, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0); failed != 0 {
		panic(failed)
	}
	return now.Nano()
}

func release() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, one := range built.Deps {
			if one.Path == library {
				return "franz-go " + strings.TrimPrefix(one.Version, "v")
			}
		}
	}
	return "franz-go"
}

// known is the offset of an answer, null where a broker told none: it answers a repeated record so.
func known(offset int64) any {
	if offset < 0 {
		return nil
	}
	return offset
}

func produce(stopping context.Context, out *lines, bootstrap []string, topic, prefix string, rate float64) (fields, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.DefaultProduceTopic(topic),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(linger),
		// By default this is snappy, which kafka-python reads only with one more package.
		kgo.ProducerBatchCompression(kgo.GzipCompression()),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var acked, failed atomic.Int64
	interval := time.Duration(float64(time.Second) / rate)
	next, sent := time.Now(), 0
	for stopping.Err() == nil {
		now := time.Now()
		if wait := next.Sub(now); wait > 0 {
			select {
			case <-stopping.Done():
			case <-time.After(wait):
			}
			continue
		}
		// After a stall what was missed is not sent in a burst.
		if behind := now.Add(-interval); next.Before(behind) {
			next = behind
		}
		next = next.Add(interval)
		id, sentNs := prefix+strconv.Itoa(sent), monotonic()
		sent++
		record := &kgo.Record{Key: []byte(id), Value: fmt.Appendf(nil, "%-*s", valueBytes, id)}
		client.Produce(context.Background(), record, func(told *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
				out.write("failed", fields{"topic": topic, "id": id, "error": err.Error()})
				return
			}
			acked.Add(1)
			out.write("ack", fields{"topic": topic, "partition": told.Partition, "offset": known(told.Offset), "id": id, "sent_mono_ns": sentNs})
		})
	}
	out.write("stopping", nil)
	err = client.Flush(context.Background())
	return fields{"sent": sent, "acked": acked.Load(), "failed": failed.Load()}, err
}

func consume(stopping context.Context, out *lines, bootstrap []string, topic, group string) (fields, error) {
	changed := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, told map[string][]int32) {
			listed := [][]any{}
			for name, partitions := range told {
				for _, partition := range partitions {
					listed = append(listed, []any{name, partition})
				}
			}
			out.write(event, fields{"partitions": listed})
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(commitEach),
		kgo.OnPartitionsAssigned(changed("assigned")),
		kgo.OnPartitionsLost(changed("lost")),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	consumed := 0
	for stopping.Err() == nil {
		fetched := client.PollFetches(stopping)
		fetched.EachError(func(_ string, _ int32, err error) {
			if stopping.Err() == nil {
				out.write("kafka", fields{"error": err.Error(), "fatal": false})
			}
		})
		fetched.EachRecord(func(one *kgo.Record) {
			consumed++
			out.write("consumed", fields{"topic": one.Topic, "partition": one.Partition, "offset": one.Offset, "id": strings.TrimRight(string(one.Value), " ")})
		})
	}
	return fields{"consumed": consumed}, client.CommitUncommittedOffsets(context.Background())
}

func run() error {
	role, bootstrap, topic, name, path := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3], os.Args[4], os.Args[5]
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	out := &lines{file: file}
	kind := strings.TrimSuffix(filepath.Base(path), ".jsonl")
	out.write("opened", fields{"kind": kind, "pid": os.Getpid(), "format": 1, "config": fields{"library": release()}})
	stopping, done := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer done()
	var counters fields
	if role == "produce" {
		rate, wrong := strconv.ParseFloat(os.Args[6], 64)
		if wrong != nil {
			return wrong
		}
		counters, err = produce(stopping, out, bootstrap, topic, name, rate)
	} else {
		counters, err = consume(stopping, out, bootstrap, topic, name)
	}
	if err != nil {
		out.write("closed", fields{"reason": "error: " + err.Error()})
		return err
	}
	closing := fields{"reason": "ordered"}
	for name, value := range counters {
		closing[name] = value
	}
	out.write("closed", closing)
	return file.Sync()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
