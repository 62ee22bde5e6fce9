package dispatchq

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// StepEvent is an event of the stream.
type StepEvent struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Version   int       `json:"version"`
	Data      StepData  `json:"data"`
}

// StepData is a step of an order. Webhooks about steps have it too.
type StepData struct {
	Seq            int64  `json:"seq"`
	OrderID        string `json:"order_id"`
	Status         string `json:"status"`
	PreviousStatus string `json:"previous_status"`
	Reason         string `json:"reason"`
	AttemptNo      *int   `json:"attempt_no"`
	DriverID       string `json:"driver_id"`
	// Changed names the changed members of the order. Only in order.updated.
	Changed []string `json:"changed"`
	// Pickup is set for an order with contents, like Dropoff and Metadata.
	Pickup   *StepPickup       `json:"pickup"`
	Dropoff  *Place            `json:"dropoff"`
	Metadata map[string]string `json:"metadata"`
}

// StepPickup is the pickup of an order in events.
type StepPickup struct {
	Address string `json:"address"`
}

// EventPage is a page of the stream. Store Next in the transaction that stores the events.
type EventPage struct {
	Events []StepEvent `json:"events"`
	Next   string      `json:"next"`
}

// EventIterator reads the stream page after page.
type EventIterator struct {
	client *Client
	after  string
	limit  int
	wait   time.Duration
	follow bool
	last   bool
	page   EventPage
	err    error
}

// Events returns an iterator over the pages after a cursor, up to now. Each has at most limit events.
func (c *Client) Events(after string, limit int) *EventIterator {
	return &EventIterator{client: c, after: after, limit: limit}
}

// FollowEvents returns an iterator over the pages after a cursor, until a request has failed in all tries. Each request waits up
// to 50 s for an event.
func (c *Client) FollowEvents(after string) *EventIterator {
	return &EventIterator{client: c, after: after, limit: 100, wait: 50 * time.Second, follow: true}
}

// Next requests the next page. It returns false after the last one, and after an error.
func (i *EventIterator) Next(ctx context.Context) bool {
	if i.last || i.err != nil {
		return false
	}
	query := url.Values{"limit": {strconv.Itoa(i.limit)}, "wait": {strconv.Itoa(int(i.wait.Seconds()))}}
	if i.after != "" {
		query.Set("after", i.after)
	}
	page := EventPage{}
	i.err = i.client.Do(ctx, Request{Method: http.MethodGet, Path: "/api/v1/events", Query: query}, &page)
	i.page, i.after = page, page.Next
	i.last = !i.follow && len(page.Events) < i.limit
	return i.err == nil
}

// Page returns the current page.
func (i *EventIterator) Page() EventPage { return i.page }

// Err returns the error that ended the iteration.
func (i *EventIterator) Err() error { return i.err }
