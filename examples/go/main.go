// A shop: creates an order, receives its webhooks, and prints its state changes until it is completed or cancelled.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	dispatchq "dispatchq.example/client"
)

var received = make(chan *dispatchq.WebhookEvent, 100)

// setting returns an environment variable.
func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	if otherwise == "" {
		log.Fatalf("%s is not set: see examples/README.md", name)
	}
	return otherwise
}

// registerEndpoint returns the secret of the webhooks. The server's config.toml declares their address, so no request is
// needed.
func registerEndpoint() string { return setting("SHOP_SECRET", "") }

// receive returns a handler that answers 401 to a webhook without a valid signature.
func receive(secret string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		event, err := dispatchq.VerifyWebhook(body, r.Header, secret)
		if err != nil {
			log.Println("refused:", err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		// A real shop stores the event before it answers.
		received <- event
		w.WriteHeader(http.StatusNoContent)
	}
}

// printSteps prints the steps of an order until it ends. It skips a step that arrives after a later one.
func printSteps(orderID string) error {
	var lastSeq int64
	for event := range received {
		var step dispatchq.StepData
		if err := json.Unmarshal(event.Data, &step); err != nil {
			return err
		}
		if step.OrderID != orderID || step.Seq <= lastSeq {
			continue
		}
		lastSeq = step.Seq
		fmt.Println(event.Type, step.Status)
		if event.Type == "order.completed" || event.Type == "order.cancelled" {
			return nil
		}
	}
	return nil
}

func run(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+setting("SHOP_PORT", "7070"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: receive(registerEndpoint())}
	go func() { _ = server.Serve(listener) }()
	client := dispatchq.New(setting("SHOP_URL", "http://127.0.0.1:8080"), setting("SHOP_KEY", ""))
	pickup := dispatchq.Place{Latitude: -6.2088, Longitude: 106.8456, Address: "Jalan Thamrin 9"}
	order, err := client.CreateOrder(ctx, dispatchq.NewOrder{ServiceType: "RIDE", Pickup: pickup}, "")
	if err != nil {
		return err
	}
	fmt.Println("created", order.OrderID)
	if err := printSteps(order.OrderID); err != nil {
		return err
	}
	// Waits until the last webhook is answered.
	return server.Shutdown(ctx)
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
