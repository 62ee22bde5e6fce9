// The proof of clients/README.md in TypeScript: proof.js SETTINGS, with the file that scripts/prove-clients writes.

import { readFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { inspect } from "node:util";

import { ApiError, Client, type NewOrder, WebhookError, type WebhookEvent, verifyWebhook } from "dispatchq";
import { checkAvailability } from "dispatchq/openapi";

interface Settings {
  url: string;
  relay: string;
  key: string;
  port: number;
  secret: string;
  secret_previous: string;
  webhooks: {
    name: string;
    body: string;
    headers: Record<string, string>;
    secrets: string[];
    now: number;
    accepted: boolean;
  }[];
}

interface Received {
  event: WebhookEvent;
  body: Buffer;
  headers: IncomingHttpHeaders;
}

const settings = JSON.parse(readFileSync(process.argv[2]!, "utf8")) as Settings;

function fail(what: string): never {
  console.log(`FOUND   node: ${what}`);
  process.exit(1);
}

function check(what: string, found: boolean) {
  if (!found) {
    fail(what);
  }
  console.log(`ok      node: ${what}`);
}

async function refused(body: Uint8Array | string, headers: IncomingHttpHeaders, secrets: string[], now?: number): Promise<boolean> {
  try {
    await verifyWebhook(body, headers, secrets, { now });
    return false;
  } catch (error) {
    if (error instanceof WebhookError) {
      return true;
    }
    throw error;
  }
}

async function errorOf(call: () => Promise<unknown>): Promise<ApiError> {
  try {
    await call();
  } catch (error) {
    if (error instanceof ApiError) {
      return error;
    }
    throw error;
  }
  fail("an error answer throws no ApiError");
}

function newOrder(name: string, latitude = -6.2088, longitude = 106.8456): NewOrder {
  return { service_type: "RIDE", pickup: { latitude, longitude }, order_id: `node-${name}` };
}

// The producer's receiver. It answers 401 to a webhook without a valid signature.
const received: Received[] = [];
let arrived = () => {};
const receiver = createServer(async (request, response) => {
  const parts: Buffer[] = [];
  for await (const part of request) {
    parts.push(part as Buffer);
  }
  const body = Buffer.concat(parts);
  try {
    received.push({ event: await verifyWebhook(body, request.headers, settings.secret), body, headers: request.headers });
    response.writeHead(204).end();
    arrived();
  } catch {
    response.writeHead(401).end();
  }
}).listen(settings.port, "127.0.0.1");

async function awaitWebhook(type: string, id: string): Promise<Received> {
  const timer = setTimeout(() => fail(`no webhook ${type} arrived within 60 s`), 60_000);
  for (;;) {
    const found = received.find(({ event }) => event.type === type && event.data.order_id === id);
    if (found) {
      clearTimeout(timer);
      return found;
    }
    await new Promise<void>((resolve) => (arrived = resolve));
  }
}

async function awaitEvent(type: string, id: string, after?: string) {
  for await (const page of client.followEvents({ after })) {
    const event = page.events.find((one) => one.type === type && one.data.order_id === id);
    if (event) {
      return { event, next: page.next };
    }
  }
  fail("the stream ended");
}

async function idsOf(orders: AsyncIterable<{ order_id: string }>): Promise<string> {
  const ids: string[] = [];
  for await (const order of orders) {
    ids.push(order.order_id);
  }
  return ids.join();
}

function seqOf(event: WebhookEvent): number {
  return "seq" in event.data ? event.data.seq : fail("a step has no seq");
}

for (const { name, body, headers, secrets, now, accepted } of settings.webhooks) {
  if ((await refused(body, headers, secrets, now)) === accepted) {
    fail(`a webhook ${name}`);
  }
}
check(`${settings.webhooks.length} webhooks are accepted or refused as they should be`, settings.webhooks.length > 20);

const relayed = new Client({ baseUrl: settings.relay, key: settings.key });
const client = new Client({ baseUrl: settings.url, key: settings.key });

const printed = inspect(client, { depth: null, showHidden: true }) + JSON.stringify(client);
check("a client is printed without its key", printed.startsWith("Client") && !printed.includes(settings.key));

let made = await relayed.createOrder(newOrder("1"));
check("an order is created although the first answer is lost and the next tries are refused", made.order_id === "node-1");

const idempotencyKey = crypto.randomUUID();
made = await client.createOrder(newOrder("2"), { idempotencyKey });
const again = await client.createOrder(newOrder("2"), { idempotencyKey });
const found = await idsOf(client.orders({ q: "node-2" }));
check("the same key makes one order", made.created_at === again.created_at && found === "node-2");
let error = await errorOf(() => client.createOrder(newOrder("3"), { idempotencyKey }));
check("the same key for another order is refused", error.status === 422 && error.error_code === "IDEMPOTENCY_KEY_REUSED");
check("the order is read", (await client.getOrder("node-2")).order_id === "node-2");
const changed = await client.updateOrder("node-2", { notes: "Ring twice.", dropoff: null });
check("the contents of the order are changed", changed.notes === "Ring twice.");
await client.createOrder(newOrder("3"));
check("a list is read page by page", (await idsOf(client.orders({ limit: 1 }))) === "node-3,node-2,node-1");

const { event, body, headers } = await awaitWebhook("order.created", "node-2");
check("a webhook reports the order", event.version === 1 && seqOf(event) > 0);
check("it is signed by the previous secret too", !(await refused(body, headers, [settings.secret_previous])));
check("a wrong secret is refused", await refused(body, headers, ["whsec_" + "A".repeat(32)]));
check("a changed body is refused", await refused(Buffer.concat([body, Buffer.from(" ")]), headers, [settings.secret]));

const step = await awaitEvent("order.created", "node-2");
check("the stream reports the order", step.event.data.seq === seqOf(event));
const created: string[] = [];
for await (const page of client.events({ limit: 1 })) {
  created.push(...page.events.filter((one) => one.type === "order.created").map((one) => one.data.order_id));
}
check("the stream is read page by page", created.sort().join() === "node-1,node-2,node-3");

const paid = await client.recordPayment("node-2", { event_id: "pay-node", payment_status: "PENDING" });
check("a payment event is recorded", paid.payment_status === "PENDING");
const gone = await client.cancelOrder("node-2", "found a lift");
check("the order is cancelled", gone.status === "CANCELLED_BY_USER");
const cancelled = await awaitWebhook("order.cancelled", "node-2");
const last = await awaitEvent("order.cancelled", "node-2", step.next);
check("a webhook and the stream report it", seqOf(cancelled.event) === last.event.data.seq);
const steps = await client.getTimeline("node-2");
check("its timeline has both", steps[0]!.reason === "ORDER_CREATED" && steps.at(-1)!.to_status === "CANCELLED_BY_USER");

error = await errorOf(() => relayed.getOrder("moved"));
check("a redirect is an error object", error.status === 301);
error = await errorOf(() => relayed.getOrder("odd"));
check("errors that are no objects are left out", error.message === "odd" && error.errors.length === 0);
error = await errorOf(() => client.getOrder("node-0"));
check("a 404 is an error object", error.status === 404 && error.error_code === "ORDER_NOT_FOUND" && error.type === "/errors/ORDER_NOT_FOUND");
check("it has the id of the request", error.request_id === error.body.request_id && !!error.title && !!error.instance);
error = await errorOf(() => idsOf(client.orders({ limit: 0 })));
check("a broken rule names its parameter", error.errors[0]?.parameter === "limit" && !!error.errors[0].detail);
error = await errorOf(() => client.createOrder(newOrder("4", -6.12, 106.665)));
check("a full area is refused with the time to wait", error.status === 503 && error.retry_after === 60 && error.body.reason === "a check");

const terminal = { service_type: "RIDE", pickup: { latitude: -6.12, longitude: 106.665 } };
error = await errorOf(() => checkAvailability({ client: client.api, body: terminal }));
check("generated functions throw the same error", error.status === 503 && error.body.reason === "a check");
receiver.close();
receiver.closeAllConnections();
