// A shop: creates an order, receives its webhooks, and prints its state changes until it is completed or cancelled.

import { EventEmitter, on } from "node:events";
import { createServer } from "node:http";

import { Client, WebhookError, verifyWebhook } from "dispatchq";

// Returns an environment variable.
function setting(name, otherwise) {
  const value = process.env[name] || otherwise;
  if (!value) {
    console.error(`${name} is not set: see examples/README.md`);
    process.exit(1);
  }
  return value;
}

// Returns the secret of the webhooks. The server's config.toml declares their address, so no request is needed.
function registerEndpoint() {
  return setting("SHOP_SECRET");
}

const secret = registerEndpoint();
const received = new EventEmitter();
// Keeps the webhooks that arrive before they are read below.
const webhooks = on(received, "webhook");

// Answers 401 to a webhook without a valid signature.
const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  try {
    const event = await verifyWebhook(Buffer.concat(parts), request.headers, secret);
    // A real shop stores the event before it answers.
    response.writeHead(204).end(() => received.emit("webhook", event));
  } catch (error) {
    if (!(error instanceof WebhookError)) throw error;
    console.error(`refused: ${error.message}`);
    response.writeHead(401).end();
  }
});
await new Promise((listening) => server.listen(Number(setting("SHOP_PORT", "7070")), "127.0.0.1", listening));

const client = new Client({ baseUrl: setting("SHOP_URL", "http://127.0.0.1:8080"), key: setting("SHOP_KEY") });
const pickup = { latitude: -6.2088, longitude: 106.8456, address: "Jalan Thamrin 9" };
const order = await client.createOrder({ service_type: "RIDE", pickup });
console.log("created", order.order_id);

// Prints the steps of the order until it ends. Skips a step that arrives after a later one.
let lastSeq = 0;
for await (const [event] of webhooks) {
  if (event.data.order_id !== order.order_id || event.data.seq <= lastSeq) continue;
  lastSeq = event.data.seq;
  console.log(event.type, event.data.status);
  if (event.type === "order.completed" || event.type === "order.cancelled") break;
}
server.close();
