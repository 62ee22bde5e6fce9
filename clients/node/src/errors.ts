/** A part of the request and the rule that it breaks. One of `pointer`, `parameter` and `header` names the part. */
export interface FieldProblem {
  detail: string;
  pointer?: string;
  parameter?: string;
  header?: string;
}

/** Error answer of the API (RFC 9457). `body` has every member; it is empty if the answer is not JSON. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly body: Record<string, unknown>;
  readonly status: number;
  readonly error_code?: string;
  readonly type?: string;
  readonly title?: string;
  readonly detail?: string;
  readonly instance?: string;
  readonly request_id?: string;
  /** Seconds of the header `Retry-After`. */
  readonly retry_after?: number;
  readonly errors: FieldProblem[];

  constructor(response: Response, text: string) {
    const body = parseObject(text);
    const word = (name: string) => (typeof body[name] === "string" ? (body[name] as string) : undefined);
    super(word("message") ?? `${response.status} ${response.statusText}`);
    this.body = body;
    this.status = response.status;
    this.error_code = word("error_code");
    this.type = word("type");
    this.title = word("title");
    this.detail = word("detail");
    this.instance = word("instance");
    this.request_id = word("request_id") ?? response.headers.get("x-request-id") ?? undefined;
    this.retry_after = retryAfter(response);
    // A proxy may answer with other members of this name.
    const errors: unknown[] = Array.isArray(body.errors) ? body.errors : [];
    this.errors = errors.filter((one) => typeof one === "object" && one !== null) as FieldProblem[];
  }
}

/** Returns the seconds of the header `Retry-After`. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("retry-after") ?? "";
  return /^\d{1,9}$/.test(value) ? Number(value) : undefined;
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
