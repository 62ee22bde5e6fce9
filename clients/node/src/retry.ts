import { ApiError, retryAfter } from "./errors.js";

const REPEATED_STATUSES = [429, 502, 503, 504];

/** Limits of the retries of one request. */
export interface Retries {
  maxRetries: number;
  /** Maximum wait before a try, in seconds. */
  maxWait: number;
  /** Time for each try, in seconds. */
  timeout: number;
}

/**
 * Returns a `fetch` that sends a request again when that is safe and may help, and throws `ApiError` for an error answer.
 * It does not follow redirects, because an answer of the API is never one.
 * It repeats a request that only reads, or that has an `Idempotency-Key`. Send this header only to operations whose document
 * has the parameter. Others ignore it, and a repeat acts twice. The whole body is read, because a
 * connection may also end within it.
 */
export function retryingFetch(retries: Retries): typeof fetch {
  return async (input, init) => {
    const request = new Request(input, init);
    for (let tries = 1; ; tries++) {
      let wait: number | undefined;
      try {
        const signal = AbortSignal.any([request.signal, AbortSignal.timeout(retries.timeout * 1000)]);
        const response = await fetch(request.clone(), { signal, redirect: "manual" });
        const content = await response.arrayBuffer();
        if (response.ok) {
          return new Response(response.status === 204 ? null : content, response);
        }
        const error = new ApiError(response, new TextDecoder().decode(content));
        wait = nextWait(retries, request, tries, mayRepeat(error), retryAfter(response));
        if (wait === undefined) {
          throw error;
        }
      } catch (error) {
        if (error instanceof ApiError || request.signal.aborted) {
          throw error;
        }
        wait = nextWait(retries, request, tries, true, undefined);
        if (wait === undefined) {
          throw error;
        }
      }
      await sleep(wait, request.signal);
    }
  };
}

/** Returns the seconds until the next try, or `undefined` if there is none. */
function nextWait(retries: Retries, request: Request, tries: number, helps: boolean, asked?: number): number | undefined {
  const safe = request.method === "GET" || request.method === "HEAD" || request.headers.has("idempotency-key");
  const wait = asked ?? Math.min(0.5 * 2 ** (tries - 1), 8);
  if (!helps || !safe || tries > retries.maxRetries || wait > retries.maxWait) {
    return undefined;
  }
  return wait * (1 + Math.random() / 4);
}

function mayRepeat(error: ApiError): boolean {
  return REPEATED_STATUSES.includes(error.status) || error.error_code === "IDEMPOTENCY_KEY_IN_USE";
}

function sleep(seconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, seconds * 1000);
    signal.addEventListener("abort", abort, { once: true });
  });
}
