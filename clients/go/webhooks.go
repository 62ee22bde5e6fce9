package dispatchq

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// WebhookEvent is the event of a verified webhook. The ID is the same each time the event is sent. Data is a StepData,
// except for order.job_id_retrieved and order.cancelled_after_payment_no_job_id.
type WebhookEvent struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Timestamp time.Time       `json:"timestamp"`
	Version   int             `json:"version"`
	Data      json.RawMessage `json:"data"`
}

// WebhookError is the reason why a webhook must be refused.
type WebhookError string

func (e WebhookError) Error() string { return string(e) }

// Verifier verifies webhooks (Standard Webhooks). The zero value of Tolerance is five minutes, that of Now is the clock.
type Verifier struct {
	Secrets   []string // a signature by one of them is enough
	Tolerance time.Duration
	Now       func() time.Time
}

// maxSignatures is the maximum number of signatures that are compared. A server sends two during a rotation of its secret.
const maxSignatures = 8

// signatures returns the first signatures of version 1 that have the length of a SHA-256.
func signatures(header string) [][]byte {
	var found [][]byte
	for _, one := range strings.Split(header, " ") {
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(one, "v1,"))
		if err == nil && strings.HasPrefix(one, "v1,") && len(signature) == sha256.Size && len(found) < maxSignatures {
			found = append(found, signature)
		}
	}
	return found
}

// VerifyWebhook returns the event of a webhook, or a WebhookError. The body is given byte for byte. A signature by one of the
// secrets is enough.
func VerifyWebhook(body []byte, header http.Header, secrets ...string) (*WebhookEvent, error) {
	return Verifier{Secrets: secrets}.Verify(body, header)
}

// Verify returns the event of a webhook, or a WebhookError.
func (v Verifier) Verify(body []byte, header http.Header) (*WebhookEvent, error) {
	keys := make([][]byte, 0, len(v.Secrets))
	for _, secret := range v.Secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil, fmt.Errorf("a secret is whsec_ and base64")
		}
		keys = append(keys, key)
	}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		if header.Get(name) == "" {
			return nil, WebhookError("the header " + name + " is missing")
		}
	}
	id, sent := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseUint(sent, 10, 50)
	if err != nil {
		return nil, WebhookError("webhook-timestamp is not a number of seconds")
	}
	now, tolerance := time.Now(), v.Tolerance
	if v.Now != nil {
		now = v.Now()
	}
	if tolerance == 0 {
		tolerance = 5 * time.Minute
	}
	sentAt := time.Unix(int64(seconds), 0)
	if sentAt.Before(now.Add(-tolerance)) || sentAt.After(now.Add(tolerance)) {
		return nil, WebhookError("webhook-timestamp is too far from now")
	}
	given := signatures(header.Get("webhook-signature"))
	found := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + sent + "."))
		mac.Write(body)
		expected := mac.Sum(nil)
		for _, signature := range given {
			// Compares in constant time, and all pairs, so that the time does not show which one matches.
			found = hmac.Equal(expected, signature) || found
		}
	}
	if !found {
		return nil, WebhookError("no signature of webhook-signature matches")
	}
	event := new(WebhookEvent)
	if json.Unmarshal(body, event) != nil || event.ID == "" || event.Type == "" || event.Version == 0 {
		return nil, WebhookError("the body is not an event")
	}
	return event, nil
}
