import type { JobIdWebhook, PaidCancelWebhook, StepWebhook } from "./openapi/types.gen.js";

/** Event of a verified webhook. `id` is the same each time the event is sent. A newer server may send other types. */
export type WebhookEvent = StepWebhook | JobIdWebhook | PaidCancelWebhook;

/** Headers of a request: those of `fetch`, or those of Node's `IncomingMessage`. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

export interface WebhookOptions {
  /** Maximum difference between `webhook-timestamp` and `now`, in seconds. */
  tolerance?: number;
  /** Seconds since 1970. */
  now?: number;
}

/** Maximum number of signatures that are compared. A server sends two during a rotation of its secret. */
const MAX_SIGNATURES = 8;

/** Webhook that must be refused. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
}

/**
 * Returns the event of a webhook, or throws `WebhookError`. `body` is the body byte for byte. A signature by one of
 * `secrets` is enough.
 */
export async function verifyWebhook(
  body: Uint8Array | string,
  headers: WebhookHeaders,
  secrets: string | readonly string[],
  { tolerance = 300, now = Date.now() / 1000 }: WebhookOptions = {},
): Promise<WebhookEvent> {
  const keys = await Promise.all([secrets].flat().map(importKey));
  const [id, sent, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => header(headers, name));
  if (!/^\d{1,15}$/.test(sent)) {
    throw new WebhookError("webhook-timestamp is not a number of seconds");
  }
  if (Math.abs(now - Number(sent)) > tolerance) {
    throw new WebhookError("webhook-timestamp is too far from now");
  }
  const content = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const prefix = new TextEncoder().encode(`${id}.${sent}.`);
  const signed = new Uint8Array(prefix.length + content.length);
  signed.set(prefix);
  signed.set(content, prefix.length);
  const expected = await Promise.all(keys.map((key) => crypto.subtle.sign("HMAC", key, signed)));
  const given = signaturesOf(signatures);
  // Compares all pairs, so that the time does not show which one matches.
  const matches = expected.flatMap((one) => given.map((signature) => isEqual(new Uint8Array(one), signature)));
  if (!matches.includes(true)) {
    throw new WebhookError("no signature of webhook-signature matches");
  }
  return parseEvent(new TextDecoder().decode(content));
}

/** Returns the first signatures of version 1 that have the length of a SHA-256. */
function signaturesOf(header: string): Uint8Array[] {
  const decoded = header.split(" ").map((one) => (one.startsWith("v1,") ? decodeBase64(one.slice(3)) : undefined));
  return decoded.filter((one) => one?.length === 32).slice(0, MAX_SIGNATURES) as Uint8Array[];
}

/** Compares arrays of one length in constant time. */
function isEqual(one: Uint8Array, other: Uint8Array): boolean {
  return one.reduce((difference, byte, index) => difference | (byte ^ other[index]!), 0) === 0;
}

function parseEvent(text: string): WebhookEvent {
  let event: Partial<WebhookEvent> | null = null;
  try {
    event = JSON.parse(text) as Partial<WebhookEvent> | null;
  } catch {
    // Refused below.
  }
  if (!event?.id || !event.type || !event.timestamp || !event.version || typeof event.data !== "object") {
    throw new WebhookError("the body is not an event");
  }
  return event as WebhookEvent;
}

function header(headers: WebhookHeaders, name: string): string {
  const plain = headers instanceof Headers ? Object.fromEntries(headers) : headers;
  const value = Object.entries(plain).find(([key]) => key.toLowerCase() === name)?.[1];
  if (typeof value !== "string") {
    throw new WebhookError(`the header ${name} is missing`);
  }
  return value;
}

async function importKey(secret: string): Promise<CryptoKey> {
  const key = decodeBase64(secret.replace(/^whsec_/, ""));
  if (!key?.length) {
    throw new TypeError("a secret is whsec_ and base64");
  }
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    return undefined;
  }
}
