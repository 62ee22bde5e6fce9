// The proof of clients/README.md in Go: proof SETTINGS, with the file that scripts/prove-clients writes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"time"

	dispatchq "dispatchq.example/client"
)

var settings struct {
	URL            string `json:"url"`
	Relay          string `json:"relay"`
	Key            string `json:"key"`
	Port           int    `json:"port"`
	Secret         string `json:"secret"`
	SecretPrevious string `json:"secret_previous"`
	Webhooks       []struct {
		Name     string            `json:"name"`
		Body     string            `json:"body"`
		Headers  map[string]string `json:"headers"`
		Secrets  []string          `json:"secrets"`
		Now      int64             `json:"now"`
		Accepted bool              `json:"accepted"`
	} `json:"webhooks"`
}

type delivery struct {
	event  *dispatchq.WebhookEvent
	step   dispatchq.StepData
	body   []byte
	header http.Header
}

var (
	ctx      = context.Background()
	received = make(chan delivery, 100)
)

func fail(what string) {
	fmt.Println("FOUND   go:", what)
	os.Exit(1)
}

func check(what string, found bool) {
	if !found {
		fail(what)
	}
	fmt.Println("ok      go:", what)
}

func must[T any](value T, err error) T {
	if err != nil {
		fail(err.Error())
	}
	return value
}

func refused(err error) bool {
	var webhookError dispatchq.WebhookError
	if err != nil && !errors.As(err, &webhookError) {
		fail(err.Error())
	}
	return err != nil
}

func problem(err error) *dispatchq.Error {
	found := new(dispatchq.Error)
	if !errors.As(err, &found) {
		fail(fmt.Sprintf("an error answer is %v", err))
	}
	return found
}

func newOrder(name string, latitude, longitude float64) dispatchq.NewOrder {
	pickup := dispatchq.Place{Latitude: latitude, Longitude: longitude}
	return dispatchq.NewOrder{OrderID: "go-" + name, ServiceType: "RIDE", Pickup: pickup}
}

// receive is the producer's receiver. It answers 401 to a webhook without a valid signature.
func receive(w http.ResponseWriter, r *http.Request) {
	body := must(io.ReadAll(r.Body))
	event, err := dispatchq.VerifyWebhook(body, r.Header, settings.Secret)
	if err != nil {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var step dispatchq.StepData
	if err := json.Unmarshal(event.Data, &step); err != nil {
		fail(err.Error())
	}
	received <- delivery{event, step, body, r.Header}
	w.WriteHeader(http.StatusNoContent)
}

func awaitWebhook(kind, id string) delivery {
	timeout := time.After(time.Minute)
	for {
		select {
		case one := <-received:
			if one.event.Type == kind && one.step.OrderID == id {
				return one
			}
		case <-timeout:
			fail("no webhook " + kind + " arrived within 60 s")
		}
	}
}

func awaitEvent(client *dispatchq.Client, kind, id, after string) (dispatchq.StepEvent, string) {
	events := client.FollowEvents(after)
	for events.Next(ctx) {
		for _, event := range events.Page().Events {
			if event.Type == kind && event.Data.OrderID == id {
				return event, events.Page().Next
			}
		}
	}
	fail(events.Err().Error())
	panic("unreachable")
}

func ids(orders *dispatchq.OrderIterator) string {
	var found []string
	for orders.Next(ctx) {
		found = append(found, orders.Order().OrderID)
	}
	if orders.Err() != nil {
		fail(orders.Err().Error())
	}
	return strings.Join(found, ",")
}

func checkWebhooks() {
	for _, one := range settings.Webhooks {
		header := http.Header{}
		for name, value := range one.Headers {
			header.Set(name, value)
		}
		now := time.Unix(one.Now, 0)
		verifier := dispatchq.Verifier{Secrets: one.Secrets, Now: func() time.Time { return now }}
		_, err := verifier.Verify([]byte(one.Body), header)
		if refused(err) == one.Accepted {
			fail("a webhook " + one.Name)
		}
	}
	what := fmt.Sprintf("%d webhooks are accepted or refused as they should be", len(settings.Webhooks))
	check(what, len(settings.Webhooks) > 20)
}

func main() {
	if err := json.Unmarshal(must(os.ReadFile(os.Args[1])), &settings); err != nil {
		fail(err.Error())
	}
	checkWebhooks()
	go func() {
		fail(http.ListenAndServe(fmt.Sprintf("127.0.0.1:%d", settings.Port), http.HandlerFunc(receive)).Error())
	}()
	relayed, client := dispatchq.New(settings.Relay, settings.Key), dispatchq.New(settings.URL, settings.Key)

	printed := fmt.Sprintf("%v %+v %#v %s %v %#v", client, client, client, client, *client, *client)
	check("a client is printed without its key", !strings.Contains(printed, settings.Key) && strings.Contains(printed, settings.URL))

	made := must(relayed.CreateOrder(ctx, newOrder("1", -6.2088, 106.8456), ""))
	check("an order is created although the first answer is lost and the next tries are refused", made.OrderID == "go-1")

	const key = "key-of-go-2"
	made = must(client.CreateOrder(ctx, newOrder("2", -6.2088, 106.8456), key))
	again := must(client.CreateOrder(ctx, newOrder("2", -6.2088, 106.8456), key))
	found := ids(client.Orders(dispatchq.OrderFilter{Q: "go-2"}))
	check("the same key makes one order", made.CreatedAt.Equal(again.CreatedAt) && found == "go-2")
	_, err := client.CreateOrder(ctx, newOrder("3", -6.2088, 106.8456), key)
	check("the same key for another order is refused", problem(err).Status == 422 && problem(err).Code == "IDEMPOTENCY_KEY_REUSED")
	check("the order is read", must(client.GetOrder(ctx, "go-2")).OrderID == "go-2")
	changed := must(client.UpdateOrder(ctx, "go-2", map[string]any{"notes": "Ring twice.", "dropoff": nil}))
	check("the contents of the order are changed", changed.Notes == "Ring twice.")
	must(client.CreateOrder(ctx, newOrder("3", -6.2088, 106.8456), ""))
	check("a list is read page by page", ids(client.Orders(dispatchq.OrderFilter{Limit: 1})) == "go-3,go-2,go-1")

	webhook := awaitWebhook("order.created", "go-2")
	check("a webhook reports the order", webhook.event.Version == 1 && webhook.step.Seq > 0)
	_, err = dispatchq.VerifyWebhook(webhook.body, webhook.header, settings.SecretPrevious)
	check("it is signed by the previous secret too", err == nil)
	_, err = dispatchq.VerifyWebhook(webhook.body, webhook.header, "whsec_"+strings.Repeat("A", 32))
	check("a wrong secret is refused", refused(err))
	_, err = dispatchq.VerifyWebhook(append(webhook.body, ' '), webhook.header, settings.Secret)
	check("a changed body is refused", refused(err))

	step, cursor := awaitEvent(client, "order.created", "go-2", "")
	check("the stream reports the order", step.Data.Seq == webhook.step.Seq)
	var created []string
	events := client.Events("", 1)
	for events.Next(ctx) {
		for _, event := range events.Page().Events {
			if event.Type == "order.created" {
				created = append(created, event.Data.OrderID)
			}
		}
	}
	sort.Strings(created)
	check("the stream is read page by page", events.Err() == nil && strings.Join(created, ",") == "go-1,go-2,go-3")

	paid := must(client.RecordPayment(ctx, "go-2", dispatchq.PaymentEventRequest{EventID: "pay-go", PaymentStatus: "PENDING"}, ""))
	check("a payment event is recorded", paid.PaymentStatus == "PENDING")
	gone := must(client.CancelOrder(ctx, "go-2", "found a lift", ""))
	check("the order is cancelled", gone.Status == "CANCELLED_BY_USER")
	webhook = awaitWebhook("order.cancelled", "go-2")
	step, _ = awaitEvent(client, "order.cancelled", "go-2", cursor)
	check("a webhook and the stream report it", step.Data.Seq == webhook.step.Seq)
	steps := must(client.GetTimeline(ctx, "go-2"))
	check("its timeline has both", steps[0].Reason == "ORDER_CREATED" && steps[len(steps)-1].ToStatus == "CANCELLED_BY_USER")

	_, err = relayed.GetOrder(ctx, "moved")
	check("a redirect is an error object", problem(err).Status == 301)
	_, err = relayed.GetOrder(ctx, "odd")
	check("errors that are no objects are left out", problem(err).Message == "odd" && len(problem(err).Errors) == 0)
	_, err = client.GetOrder(ctx, "go-0")
	missing := problem(err)
	check("a 404 is an error object", missing.Status == 404 && missing.Code == "ORDER_NOT_FOUND" && missing.Type == "/errors/ORDER_NOT_FOUND")
	check("it has the id of the request", missing.RequestID == missing.Body["request_id"] && missing.Title != "" && missing.Instance != "")
	list := client.Orders(dispatchq.OrderFilter{Limit: -1})
	check("a broken rule ends an iteration", !list.Next(ctx))
	check("it names its parameter", problem(list.Err()).Errors[0].Parameter == "limit" && problem(list.Err()).Errors[0].Detail != "")
	_, err = client.CreateOrder(ctx, newOrder("4", -6.12, 106.665), "")
	busy := problem(err)
	check("a full area is refused with the time to wait", busy.Status == 503 && busy.RetryAfter == 60 && busy.Body["reason"] == "a check")

	terminal := map[string]any{"service_type": "RIDE", "pickup": map[string]float64{"latitude": -6.12, "longitude": 106.665}}
	err = client.Do(ctx, dispatchq.Request{Method: http.MethodPost, Path: "/api/v1/dispatcher/availability-check", Body: terminal}, nil)
	check("other operations return the same error", problem(err).Status == 503 && problem(err).Body["reason"] == "a check")
}
