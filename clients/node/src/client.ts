import { createClient, type Client as OpenApiClient } from "./openapi/client/index.js";
import { cancelOrder, createOrder, changeOrder, findOrder, getOrder, getTimeline, readEvents, recordPayment } from "./openapi/sdk.gen.js";
import type {
  CancelledOrder,
  EventPage,
  FindOrderData,
  NewOrder,
  Order,
  OrderPatch,
  PaymentEventRequest,
  TimelineEvent,
} from "./openapi/types.gen.js";
import { retryingFetch, type Retries } from "./retry.js";

export interface ClientOptions extends Partial<Retries> {
  baseUrl: string;
  /** API key, which starts with `dq_`. */
  key: string;
}

export interface ChangeOptions {
  /** Key of the change. If omitted, the client makes a UUID. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface StreamOptions {
  /** Cursor: `next` of the previous page. */
  after?: string;
  /** Maximum number of events per page. */
  limit?: number;
  signal?: AbortSignal;
}

export type OrderFilters = NonNullable<FindOrderData["query"]>;

/** Client of one server. Every method throws `ApiError` for an error answer, and the error of `fetch` if there is none. */
export class Client {
  /**
   * For the functions of `dispatchq/openapi`: pass it as `client`. They retry and throw in the same way. Send the header
   * `Idempotency-Key` only to operations whose document has this parameter. Others ignore it, and a repeat acts twice.
   */
  readonly api: OpenApiClient;

  constructor({ baseUrl, key, maxRetries = 4, maxWait = 30, timeout = 75 }: ClientOptions) {
    this.api = createClient({
      baseUrl: baseUrl.replace(/\/+$/, ""),
      auth: key,
      fetch: retryingFetch({ maxRetries, maxWait, timeout }),
      throwOnError: true,
    });
  }

  /** Creates an order. */
  async createOrder(order: NewOrder, options: ChangeOptions = {}): Promise<Order> {
    return (await createOrder<true>({ client: this.api, body: order, ...change(options) })).data;
  }

  /** Returns an order. */
  async getOrder(id: string): Promise<Order> {
    return (await getOrder<true>({ client: this.api, path: { id } })).data;
  }

  /** Returns the history of an order. */
  async getTimeline(id: string): Promise<TimelineEvent[]> {
    return (await getTimeline<true>({ client: this.api, path: { id } })).data.events;
  }

  /** Changes the contents of an order before the pickup. A null removes its value. Not sent again after a network error. */
  async updateOrder(id: string, patch: OrderPatch): Promise<Order> {
    return (await changeOrder<true>({ client: this.api, path: { id }, body: patch })).data;
  }

  /** Cancels an order on behalf of the customer. */
  async cancelOrder(id: string, reason?: string, options: ChangeOptions = {}): Promise<CancelledOrder> {
    return (await cancelOrder<true>({ client: this.api, path: { id }, body: { reason }, ...change(options) })).data;
  }

  /** Reports a payment event of an order. */
  async recordPayment(id: string, payment: PaymentEventRequest, options: ChangeOptions = {}): Promise<Order> {
    return (await recordPayment<true>({ client: this.api, path: { id }, body: payment, ...change(options) })).data;
  }

  /** Iterates over the orders that match, newest first. `limit` is the number of orders per request. */
  async *orders(filters: OrderFilters = {}): AsyncGenerator<Order, void> {
    let cursor = filters.cursor;
    for (;;) {
      const page = (await findOrder<true>({ client: this.api, query: { ...filters, cursor } })).data;
      yield* page.orders;
      if (!page.next_cursor) {
        return;
      }
      cursor = page.next_cursor;
    }
  }

  /** Iterates over the pages of the event stream after a cursor, up to now. */
  async *events({ after, limit = 100, signal }: StreamOptions = {}): AsyncGenerator<EventPage, void> {
    for (;;) {
      const page = await this.readEvents({ after, limit, wait: 0 }, signal);
      yield page;
      if (page.events.length < limit) {
        return;
      }
      after = page.next;
    }
  }

  /**
   * Iterates over the pages of the event stream after a cursor, until a request has failed in all tries. Each request waits
   * up to `wait` seconds for an event, at most 50.
   */
  async *followEvents(options: StreamOptions & { wait?: number } = {}): AsyncGenerator<EventPage, never> {
    const { limit = 100, wait = 50, signal } = options;
    for (let after = options.after; ; ) {
      const page = await this.readEvents({ after, limit, wait }, signal);
      yield page;
      after = page.next;
    }
  }

  private async readEvents(query: { after?: string; limit: number; wait: number }, signal?: AbortSignal): Promise<EventPage> {
    return (await readEvents<true>({ client: this.api, query, signal })).data;
  }
}

function change({ idempotencyKey, signal }: ChangeOptions) {
  return { headers: { "Idempotency-Key": idempotencyKey ?? crypto.randomUUID() }, signal };
}
