package dispatchq

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// Error is an error answer of the API (RFC 9457).
type Error struct {
	Status     int // the HTTP status
	Code       string
	Message    string
	Type       string
	Title      string
	Detail     string
	Instance   string
	RequestID  string
	RetryAfter int // seconds of the header Retry-After, or -1
	Errors     []FieldProblem
	Body       map[string]any // every member; empty if the answer is not JSON
}

// FieldProblem is a part of the request and the rule that it breaks. One of Pointer, Parameter and Header names the part.
type FieldProblem struct {
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer"`
	Parameter string `json:"parameter"`
	Header    string `json:"header"`
}

func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

// requestError is a request that cannot be sent.
type requestError struct{ error }

func (e *requestError) Unwrap() error { return e.error }

func newError(response *http.Response, content []byte) *Error {
	problem := &Error{Status: response.StatusCode, RetryAfter: -1, Body: map[string]any{}}
	var known struct {
		Errors []FieldProblem `json:"errors"`
	}
	// A proxy may answer with other members of this name.
	if json.Unmarshal(content, &problem.Body) == nil && json.Unmarshal(content, &known) == nil {
		problem.Errors = known.Errors
	}
	word := func(name string) string {
		text, _ := problem.Body[name].(string)
		return text
	}
	problem.Code = word("error_code")
	problem.Message = word("message")
	problem.Type = word("type")
	problem.Title = word("title")
	problem.Detail = word("detail")
	problem.Instance = word("instance")
	problem.RequestID = word("request_id")
	if problem.Message == "" {
		problem.Message = http.StatusText(response.StatusCode)
	}
	if problem.RequestID == "" {
		problem.RequestID = response.Header.Get("X-Request-Id")
	}
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 31); err == nil {
		problem.RetryAfter = int(seconds)
	}
	return problem
}

// mayRepeat returns whether another try may have another result. Errors of the network have no answer.
func mayRepeat(err error) bool {
	var problem *Error
	if !errors.As(err, &problem) {
		var unsent *requestError
		return !errors.As(err, &unsent)
	}
	switch problem.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return problem.Code == "IDEMPOTENCY_KEY_IN_USE"
}
