package dispatchq

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Place is a place on the map, with its address if that is known.
type Place struct {
	Latitude  float64 `json:"latitude"`
	Longitude float64 `json:"longitude"`
	Address   string  `json:"address,omitempty"`
}

// Contact is the person to call about an order. The phone number has the form of E.164.
type Contact struct {
	Name  string `json:"name,omitempty"`
	Phone string `json:"phone,omitempty"`
	Email string `json:"email,omitempty"`
}

// NewOrder is an order to be created.
type NewOrder struct {
	OrderID       string   `json:"order_id,omitempty"`
	ServiceType   string   `json:"service_type"`
	Pickup        Place    `json:"pickup"`
	PaymentStatus string   `json:"payment_status,omitempty"`
	AmountMinor   *int64   `json:"amount_minor,omitempty"`
	Currency      string   `json:"currency,omitempty"`
	AreaID        string   `json:"area_id,omitempty"`
	CustomerID    string   `json:"customer_id,omitempty"`
	Language      string   `json:"language,omitempty"`
	Channel       string   `json:"channel,omitempty"`
	LoyaltyLevel  string   `json:"loyalty_level,omitempty"`
	Dropoff       *Place   `json:"dropoff,omitempty"`
	Notes         string   `json:"notes,omitempty"`
	Contact       *Contact `json:"contact,omitempty"`
	// Metadata holds the producer's own values.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Requires holds the labels that the driver must have.
	Requires []string `json:"requires,omitempty"`
	// PickupAt is the time of the pickup. Nil: as soon as possible.
	PickupAt *time.Time `json:"pickup_at,omitempty"`
}

// Order is an order. Members that the API omits are empty or nil.
type Order struct {
	OrderID      string `json:"order_id"`
	Status       string `json:"status"`
	ServiceType  string `json:"service_type"`
	AreaID       string `json:"area_id"`
	CustomerID   string `json:"customer_id"`
	Language     string `json:"language"`
	Channel      string `json:"channel"`
	LoyaltyLevel string `json:"loyalty_level"`
	Admission    string `json:"admission"`
	Pickup       *Place `json:"pickup"`
	Dropoff      *Place `json:"dropoff"`
	Notes        string `json:"notes"`
	// Contact is set only in answers to the driver who has the order.
	Contact          *Contact          `json:"contact"`
	Metadata         map[string]string `json:"metadata"`
	Requires         []string          `json:"requires"`
	PaymentStatus    string            `json:"payment_status"`
	PaidAt           *time.Time        `json:"paid_at"`
	Refund           *OrderRefund      `json:"refund"`
	AmountMinor      *int64            `json:"amount_minor"`
	Currency         string            `json:"currency"`
	Partner          string            `json:"partner"`
	BookingID        string            `json:"booking_id"`
	JobID            string            `json:"job_id"`
	DriverID         string            `json:"driver_id"`
	AttemptNo        int               `json:"attempt_no"`
	HeldForReview    bool              `json:"held_for_review"`
	Next             *NextStep         `json:"next"`
	CreatedAt        time.Time         `json:"created_at"`
	LifetimeDeadline time.Time         `json:"lifetime_deadline"`
	LifetimeLeftSec  *int64            `json:"lifetime_left_sec"`
	ClosedAt         *time.Time        `json:"closed_at"`
	PickupAt         *time.Time        `json:"pickup_at"`
	// TrackingURL is the address of the page for the customer. It is set only in the answer to the creation.
	TrackingURL string `json:"tracking_url"`
}

// OrderRefund is the refund owed to the customer of an order.
type OrderRefund struct {
	State       string `json:"state"`
	AmountMinor *int64 `json:"amount_minor"`
	Currency    string `json:"currency"`
}

// NextStep is the next automatic step of an order.
type NextStep struct {
	Action string    `json:"action"`
	At     time.Time `json:"at"`
	InSec  int64     `json:"in_sec"`
}

// CancelledOrder is the answer to a cancellation.
type CancelledOrder struct {
	Order
	TripContinues bool   `json:"trip_continues"`
	Note          string `json:"note"`
}

// PaymentEventRequest is a payment event of an order.
type PaymentEventRequest struct {
	EventID       string `json:"event_id"`
	PaymentStatus string `json:"payment_status"`
}

// TimelineEvent is an entry in the history of an order.
type TimelineEvent struct {
	Seq        int64     `json:"seq"`
	At         time.Time `json:"at"`
	FromStatus string    `json:"from_status"`
	ToStatus   string    `json:"to_status"`
	Reason     string    `json:"reason"`
	Actor      string    `json:"actor"`
	AttemptNo  *int      `json:"attempt_no"`
	Detail     string    `json:"detail"`
}

// CreateOrder creates an order. If the idempotency key is empty, it is a new UUID.
func (c *Client) CreateOrder(ctx context.Context, order NewOrder, idempotencyKey string) (*Order, error) {
	made := new(Order)
	return made, c.change(ctx, "/api/v1/orders", order, idempotencyKey, made)
}

// GetOrder returns an order.
func (c *Client) GetOrder(ctx context.Context, id string) (*Order, error) {
	order := new(Order)
	return order, c.Do(ctx, Request{Method: http.MethodGet, Path: orderPath(id, "")}, order)
}

// GetTimeline returns the history of an order.
func (c *Client) GetTimeline(ctx context.Context, id string) ([]TimelineEvent, error) {
	var answer struct {
		Events []TimelineEvent `json:"events"`
	}
	err := c.Do(ctx, Request{Method: http.MethodGet, Path: orderPath(id, "/timeline")}, &answer)
	return answer.Events, err
}

// UpdateOrder changes the contents of an order before the pickup. The patch is a JSON Merge Patch (RFC 7396), such as
// map[string]any{"notes": nil}. It is not sent again after a network error.
func (c *Client) UpdateOrder(ctx context.Context, id string, patch any) (*Order, error) {
	order := new(Order)
	return order, c.Do(ctx, Request{Method: http.MethodPatch, Path: orderPath(id, ""), Body: patch}, order)
}

// CancelOrder cancels an order on behalf of the customer. If the idempotency key is empty, it is a new UUID.
func (c *Client) CancelOrder(ctx context.Context, id, reason, idempotencyKey string) (*CancelledOrder, error) {
	cancelled := new(CancelledOrder)
	body := struct {
		Reason string `json:"reason,omitempty"`
	}{reason}
	return cancelled, c.change(ctx, orderPath(id, "/cancel"), body, idempotencyKey, cancelled)
}

// RecordPayment reports a payment event of an order. If the idempotency key is empty, it is a new UUID.
func (c *Client) RecordPayment(ctx context.Context, id string, payment PaymentEventRequest, idempotencyKey string) (*Order, error) {
	order := new(Order)
	return order, c.change(ctx, orderPath(id, "/payment"), payment, idempotencyKey, order)
}

func (c *Client) change(ctx context.Context, path string, body any, key string, answer any) error {
	if key == "" {
		var err error
		if key, err = newKey(); err != nil {
			return err
		}
	}
	return c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body, IdempotencyKey: key}, answer)
}

func orderPath(id, rest string) string {
	return "/api/v1/orders/" + url.PathEscape(id) + rest
}

// OrderFilter selects orders. Empty fields select all.
type OrderFilter struct {
	Status, Area, ServiceType, Driver, Customer, Q string
	// Metadata selects orders that have all of these values.
	Metadata                                       map[string]string
	Closed, Held                                   *bool
	From, To                                       time.Time
	Limit                                          int // orders per request
}

func (f OrderFilter) query() url.Values {
	query := url.Values{}
	words := map[string]string{
		"status": f.Status, "area": f.Area, "service_type": f.ServiceType, "driver": f.Driver, "customer": f.Customer, "q": f.Q,
	}
	for name, word := range words {
		if word != "" {
			query.Set(name, word)
		}
	}
	for key, value := range f.Metadata {
		query.Set("metadata["+key+"]", value)
	}
	for name, flag := range map[string]*bool{"closed": f.Closed, "held": f.Held} {
		if flag != nil {
			query.Set(name, strconv.FormatBool(*flag))
		}
	}
	for name, at := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !at.IsZero() {
			query.Set(name, at.Format(time.RFC3339Nano))
		}
	}
	if f.Limit != 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	return query
}

// OrderIterator reads a list page after page:
//
//	for orders.Next(ctx) {
//		use(orders.Order())
//	}
//	if err := orders.Err(); err != nil {
//		return err
//	}
type OrderIterator struct {
	client *Client
	query  url.Values
	page   []Order
	at     int
	last   bool
	err    error
}

// Orders returns an iterator over the orders that match, newest first.
func (c *Client) Orders(filter OrderFilter) *OrderIterator {
	return &OrderIterator{client: c, query: filter.query(), at: -1}
}

// Next advances to the next order. It returns false after the last one, and after an error.
func (i *OrderIterator) Next(ctx context.Context) bool {
	i.at++
	for i.err == nil && i.at >= len(i.page) && !i.last {
		var answer struct {
			Orders     []Order `json:"orders"`
			NextCursor string  `json:"next_cursor"`
		}
		i.err = i.client.Do(ctx, Request{Method: http.MethodGet, Path: "/api/v1/orders", Query: i.query}, &answer)
		i.page, i.at, i.last = answer.Orders, 0, answer.NextCursor == ""
		i.query.Set("cursor", answer.NextCursor)
	}
	return i.err == nil && i.at < len(i.page)
}

// Order returns the current order.
func (i *OrderIterator) Order() Order { return i.page[i.at] }

// Err returns the error that ended the iteration.
func (i *OrderIterator) Err() error { return i.err }
