package main

import (
	"container/heap"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A way is one direction of a connection: the bytes in flight, and when they arrive.
type way struct {
	window int64
	oneWay time.Duration

	lock      sync.Mutex
	changed   *sync.Cond
	pieces    pieces
	following uint64
	onWay     int64 // bytes sent but not yet acknowledged
	isOver    bool  // the reader has closed
	atEnd     func()
}

type piece struct {
	due    time.Time
	number uint64
	bytes  []byte
	buffer *[]byte // the buffer of the bytes, to be reused
}

// buffers are reused: allocating and collecting each would cost more than moving its bytes.
var buffers = sync.Pool{New: func() any {
	buffer := make([]byte, chunkBytes)
	return &buffer
}}

func newWay(window int64, oneWay time.Duration) *way {
	w := &way{window: window, oneWay: oneWay}
	w.changed = sync.NewCond(&w.lock)
	return w
}

// room waits until the window has room, and returns how many of the wanted bytes fit; a frame is never split.
func (w *way) room(wanted int) int {
	w.lock.Lock()
	defer w.lock.Unlock()
	for w.onWay >= w.window && !w.isOver {
		w.changed.Wait()
	}
	if free := w.window - w.onWay; int64(wanted) > free && free > 0 {
		return int(free)
	}
	return wanted
}

// put sends bytes; delayed ones take longer.
func (w *way) put(bytes []byte, extra time.Duration, buffer *[]byte) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.onWay += int64(len(bytes))
	heap.Push(&w.pieces, piece{time.Now().Add(w.oneWay + extra), w.following, bytes, buffer})
	w.following++
	w.changed.Broadcast()
}

// finish runs a function once all bytes have arrived.
func (w *way) finish(then func()) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.atEnd = then
	w.changed.Broadcast()
}

// deliver writes the bytes that are due, in order, and frees their room when the acknowledgement would arrive.
func (w *way) deliver(to *net.TCPConn, carried *atomic.Int64) {
	for {
		next, ok := w.take()
		if !ok {
			return
		}
		if _, err := to.Write(next.bytes); err != nil {
			w.end()
			return
		}
		n := int64(len(next.bytes))
		if next.buffer != nil {
			buffers.Put(next.buffer)
		}
		carried.Add(n)
		if w.oneWay == 0 {
			w.acknowledge(n)
		} else {
			time.AfterFunc(w.oneWay, func() { w.acknowledge(n) })
		}
	}
}

// take waits for the next piece that is due.
func (w *way) take() (piece, bool) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for {
		if w.isOver {
			return piece{}, false
		}
		if len(w.pieces) == 0 {
			if w.atEnd != nil {
				w.atEnd()
				w.isOver = true
				return piece{}, false
			}
			w.changed.Wait()
			continue
		}
		wait := time.Until(w.pieces[0].due)
		if wait <= 0 {
			return heap.Pop(&w.pieces).(piece), true
		}
		// Sleep without the lock: a frame that is put meanwhile may overtake a delayed one.
		timer := time.AfterFunc(wait, w.wake)
		w.changed.Wait()
		timer.Stop()
	}
}

// wake takes the lock, so that no goroutine is about to sleep.
func (w *way) wake() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.changed.Broadcast()
}

func (w *way) acknowledge(n int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.onWay -= n
	w.changed.Broadcast()
}

// end drops the bytes in flight.
func (w *way) end() {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.isOver = true
	w.changed.Broadcast()
}

type pieces []piece

func (p pieces) Len() int { return len(p) }
func (p pieces) Less(i, j int) bool {
	if p[i].due.Equal(p[j].due) {
		return p[i].number < p[j].number
	}
	return p[i].due.Before(p[j].due)
}
func (p pieces) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *pieces) Push(x any)   { *p = append(*p, x.(piece)) }
func (p *pieces) Pop() any {
	old := *p
	last := old[len(old)-1]
	old[len(old)-1] = piece{}
	*p = old[:len(old)-1]
	return last
}
