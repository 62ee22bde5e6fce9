// Package dispatchq is the client of dispatchq: it creates orders, follows and cancels them.
package dispatchq

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client is the client of one server. Goroutines may share it. Change its fields before the first request.
type Client struct {
	HTTP       *http.Client  // must not follow redirects, because an answer of the API is never one
	MaxRetries int           // retries of one call
	MaxWait    time.Duration // maximum wait before a try
	Timeout    time.Duration // time for each try
	baseURL    string
	key        string
}

// New returns a client with the default limits. The key starts with dq_.
func New(baseURL, key string) *Client {
	return &Client{
		HTTP: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}},
		MaxRetries: 4,
		MaxWait:    30 * time.Second,
		// A read of the stream waits up to 50 s. The server ends a request after 60 s and reports the reason.
		Timeout: 75 * time.Second,
		baseURL: strings.TrimRight(baseURL, "/"),
		key:     key,
	}
}

// String returns a text without the key.
func (c Client) String() string { return "dispatchq.Client(" + c.baseURL + ")" }

// GoString returns a text without the key.
func (c Client) GoString() string { return c.String() }

// Request is a request for Do. Its path starts with /api/v1. Set IdempotencyKey only for operations whose document has the
// parameter Idempotency-Key. Others ignore it, and a repeat acts twice.
type Request struct {
	Method, Path   string
	Query          url.Values
	Body           any    // sent as JSON, unless it is nil
	IdempotencyKey string // a change with a key is sent again after a network error
}

// Do sends a request of any operation and decodes the answer into answer, unless that is nil. It returns an *Error for
// an error answer. It repeats reads, and changes with an idempotency key.
func (c *Client) Do(ctx context.Context, request Request, answer any) error {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = json.Marshal(request.Body); err != nil {
			return err
		}
	}
	for tries := 1; ; tries++ {
		content, asked, err := c.try(ctx, request, body)
		if err == nil {
			if answer == nil {
				return nil
			}
			return json.Unmarshal(content, answer)
		}
		wait, again := c.nextWait(request, tries, asked)
		if !again || !mayRepeat(err) || ctx.Err() != nil {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// try sends the request once. It returns the body of the answer, or an error and the seconds of Retry-After, or -1. It reads
// the whole body, because a connection may also end within it.
func (c *Client) try(ctx context.Context, request Request, body []byte) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	address := c.baseURL + request.Path
	if len(request.Query) > 0 {
		address += "?" + request.Query.Encode()
	}
	sent, err := http.NewRequestWithContext(ctx, request.Method, address, bytes.NewReader(body))
	if err != nil {
		return nil, -1, &requestError{err}
	}
	sent.Header.Set("Authorization", "Bearer "+c.key)
	sent.Header.Set("User-Agent", "dispatchq-go")
	if request.Body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if request.IdempotencyKey != "" {
		sent.Header.Set("Idempotency-Key", request.IdempotencyKey)
	}
	response, err := c.HTTP.Do(sent)
	if err != nil {
		return nil, -1, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, -1, err
	}
	if response.StatusCode >= 300 {
		problem := newError(response, content)
		return nil, problem.RetryAfter, problem
	}
	return content, -1, nil
}

// nextWait returns the time until the next try, and whether there is one.
func (c *Client) nextWait(request Request, tries, asked int) (time.Duration, bool) {
	safe := request.Method == http.MethodGet || request.Method == http.MethodHead || request.IdempotencyKey != ""
	wait := time.Duration(asked) * time.Second
	if asked < 0 {
		wait = time.Duration(math.Min(0.5*math.Pow(2, float64(tries-1)), 8) * float64(time.Second))
	}
	if !safe || tries > c.MaxRetries || wait > c.MaxWait {
		return 0, false
	}
	// Up to a quarter longer, so that clients that failed together do not return together.
	var random [1]byte
	if _, err := rand.Read(random[:]); err != nil {
		return wait, true
	}
	return wait + wait/1024*time.Duration(random[0]), true
}

// newKey returns a random UUID.
func newKey() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
