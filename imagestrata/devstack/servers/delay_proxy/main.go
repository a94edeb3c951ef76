// A TCP proxy that makes a Cassandra node look far away.
//
// Every byte is delayed by half the round-trip time in each direction. As in TCP, a window limits the bytes in flight in
// each direction of a connection: a byte counts until its acknowledgement could have arrived, one round trip after it
// was sent. Optionally, some responses of the server are delayed further. The proxy parses frames of the native protocol
// (version 4), so that other frames of the same connection overtake a delayed one. Each response is chosen independently,
// so a repeated read is probably fast.
//
// It prints the port that it listens on, and ends when its standard input ends; then it prints its traffic.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	chunkBytes  = 64 << 10
	headerBytes = 9       // version, flags, stream (2), opcode, length (4)
	resultCode  = 0x08    // the opcode of a frame with rows
	smallBytes  = 1 << 10 // smaller responses answer the driver's own queries and are never delayed
)

type link struct {
	target    string
	oneWay    time.Duration
	window    int64
	holdShare float64
	hold      time.Duration

	carried [2]atomic.Int64 // bytes to the server, and from it
	held    atomic.Int64
	opened  atomic.Int64

	lock   sync.Mutex
	chance *rand.Rand
}

type totals struct {
	Connections     int64   `json:"connections"`
	BytesToServer   int64   `json:"bytes_to_server"`
	BytesFromServer int64   `json:"bytes_from_server"`
	Held            int64   `json:"held"`
	CPUSeconds      float64 `json:"cpu_seconds"`
}

func main() {
	target := flag.String("to", "", "the server, HOST:PORT")
	rtt := flag.Duration("rtt", 0, "the round trip")
	window := flag.Int64("window", 3_000_000, "bytes on their way in each direction of a connection")
	share := flag.Float64("hold-share", 0, "share of the server's answers that are held back")
	hold := flag.Duration("hold", 2*time.Second, "how long such an answer is held")
	seed := flag.Int64("seed", 0, "seed of the draw")
	flag.Parse()
	if *target == "" || *rtt < 0 || *window < 1 || *share < 0 || *share > 1 || *hold < 0 {
		fmt.Fprintln(os.Stderr, "delayproxy: wanted -to HOST:PORT, times of 0 or more, a window of at least 1 byte "+
			"and a share from 0 to 1")
		os.Exit(2)
	}
	l := &link{target: *target, oneWay: *rtt / 2, window: *window, holdShare: *share, hold: *hold,
		chance: rand.New(rand.NewSource(*seed))}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "delayproxy:", err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go l.serve(listener)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = json.NewEncoder(os.Stdout).Encode(l.totals())
}

func (l *link) totals() totals {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return totals{
		Connections:     l.opened.Load(),
		BytesToServer:   l.carried[0].Load(),
		BytesFromServer: l.carried[1].Load(),
		Held:            l.held.Load(),
		CPUSeconds:      float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9,
	}
}

func (l *link) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go l.connect(client.(*net.TCPConn))
	}
}

// connect handles one connection; establishing it takes one more round trip.
func (l *link) connect(client *net.TCPConn) {
	defer client.Close()
	time.Sleep(2 * l.oneWay)
	found, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	server := found.(*net.TCPConn)
	defer server.Close()
	l.opened.Add(1)
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); l.carry(client, server, &l.carried[0], false) }()
	go func() { defer both.Done(); l.carry(server, client, &l.carried[1], l.holdShare > 0) }()
	both.Wait()
}

// carry moves bytes in one direction until either end closes.
func (l *link) carry(from, to *net.TCPConn, carried *atomic.Int64, isHeld bool) {
	way := newWay(l.window, l.oneWay)
	delivered := make(chan struct{})
	go func() { defer close(delivered); way.deliver(to, carried) }()
	defer func() { <-delivered }()
	read := l.readChunk
	if isHeld {
		read = l.readFrame
	}
	for {
		piece, extra, buffer, err := read(from, way)
		if len(piece) > 0 {
			way.put(piece, extra, buffer)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				way.finish(func() { _ = to.CloseWrite() })
			} else {
				way.finish(func() { _ = to.Close() })
			}
			return
		}
	}
}

func (l *link) readChunk(from *net.TCPConn, way *way) ([]byte, time.Duration, *[]byte, error) {
	room := way.room(chunkBytes)
	buffer := buffers.Get().(*[]byte)
	n, err := from.Read((*buffer)[:room])
	return (*buffer)[:n], 0, buffer, err
}

// readFrame reads one frame, and chooses at random whether to delay it.
func (l *link) readFrame(from *net.TCPConn, way *way) ([]byte, time.Duration, *[]byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(from, header[:]); err != nil {
		return nil, 0, nil, err
	}
	body := int(header[5])<<24 | int(header[6])<<16 | int(header[7])<<8 | int(header[8])
	way.room(headerBytes + body)
	frame := make([]byte, headerBytes+body)
	copy(frame, header[:])
	if _, err := io.ReadFull(from, frame[headerBytes:]); err != nil {
		return nil, 0, nil, err
	}
	if header[4] != resultCode || body < smallBytes {
		return frame, 0, nil, nil
	}
	l.lock.Lock()
	isHeld := l.chance.Float64() < l.holdShare
	l.lock.Unlock()
	if !isHeld {
		return frame, 0, nil, nil
	}
	l.held.Add(1)
	return frame, l.hold, nil, nil
}
