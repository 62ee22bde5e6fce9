/** Client of dispatchq: create orders, follow and cancel them. `dispatchq/openapi` has all operations and types. */

export { type ChangeOptions, Client, type ClientOptions, type OrderFilters, type StreamOptions } from "./client.js";
export { ApiError, type FieldProblem } from "./errors.js";
export type {
  CancelledOrder,
  Contact,
  EventPage,
  Location,
  NewOrder,
  Order,
  OrderPatch,
  PaymentEventRequest,
  Place,
  StepEvent,
  TimelineEvent,
} from "./openapi/types.gen.js";
export { type Retries, retryingFetch } from "./retry.js";
export { WebhookError, type WebhookEvent, type WebhookHeaders, type WebhookOptions, verifyWebhook } from "./webhooks.js";
