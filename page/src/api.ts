/** Requests to the HTTP API, relative to the base of the page. */

import type { Refusal } from "./live.ts";

export type State = "scheduled" | "ready" | "running" | "waiting" | "succeeded" | "failed" | "cancelled";
export const STATES: readonly State[] = ["scheduled", "ready", "running", "waiting", "succeeded", "failed", "cancelled"];

export interface ErrorText { type: string; message: string }

export interface TaskRow {
  uuid: string; short_id: string; source: string; label: string; state: State; reason: string;
  attempt: number; max_retries: number; priority: number; tags: string[]; lane: string | null;
  added_at: string; due_at: string; started_at: string | null; ended_at: string | null; duration_ms: number | null;
  worker: string | null; error: ErrorText | null; args_preview: string; progress: [number, number] | null;
  flow: string | null; cancel_wanted: boolean;
}

export interface StateCount { n: number; exact: boolean }

export interface TaskList {
  items: TaskRow[]; cursor: string | null; scanned: number; scanned_to: string | null;
  counts: Record<string, StateCount> | null;
}

export interface AttemptRow {
  attempt: number; type: string; message: string; traceback: string;
  started_at: string | null; ended_at: string | null; worker: string | null;
}

export interface StepRow { name: string; size: number; at: string | null; until: string | null; signal: string }
/** The request that ends a reason; limit and signal: the operator adds a value to the body. */
export interface ReasonAction { label: "resume" | "limit" | "signal"; method: "POST" | "PUT"; path: string; body: unknown }
export interface Holder { uuid: string | null; source: string; worker: string | null; where: string; since: string | null }

export interface ExplanationText {
  reason: string; text: string; until: string | null; action: ReasonAction | null; held_by: Holder[];
}

export interface Explanation {
  reason: string; text: string; until: string | null; ahead: number; estimated_start: string | null;
  more: ExplanationText[]; holders: string[]; action: ReasonAction | null; held_by: Holder[]; held_by_count: number;
}

export interface Segment {
  from: string; to: string | null; kind: "scheduled" | "pending" | "running" | "backoff" | "waiting" | "crash" | "gap";
  attempt: number; worker: string | null; text: string;
  paused: { from: string; to: string | null; user: string; reason: string }[];
}

/** Tasks that have something in common; n: null: not counted. */
export interface SameRow {
  kind: "error" | "argument" | "schedule"; name: string; value: string; q: string; n: number | null; exact: boolean;
}

export interface WaitsFor { signals: string[]; flow: string | null; needed: number; reached: number; until: string | null }

export interface TaskDetail extends TaskRow {
  args: unknown; args_text: string; metadata: unknown; metadata_text: string; unique: string | null; crashes: number; retries: number;
  result: unknown; result_text: string; result_size: number; result_cut: boolean; result_status: string; errors: AttemptRow[]; steps: StepRow[]; items_saved: number;
  trace_id: string | null; release: string | null; waits_for: WaitsFor | null; redacted: string[]; explain?: Explanation | null; timeline?: Segment[];
  related?: { parent: string | null; flow: string | null; batch: string | null; group: string | null; same: SameRow[] };
}

export interface StreamEntry { cursor: string; number: number; kind: "item" | "part"; data: unknown; text: string }
export interface StreamList { items: StreamEntry[]; cursor: string; restarted: boolean; ended: boolean }

export interface PauseRow { key: string | null; reason: string; since: string | null }
export interface SourceLimitRow { name: string; cap: number | null; rate: number | null; burst: number; by: string; user: string | null; at: string | null }
export interface Rates { started: number; done: number; failed: number; retried: number }

export interface SourceRow {
  name: string; ready: number; parked: number; scheduled: number; running: number; waiting: number;
  succeeded: number; failed: number; cancelled: number; workers: number; p50_ms: number | null; p95_ms: number | null;
  limits: SourceLimitRow[]; paused: PauseRow | null; paused_keys: PauseRow[]; mode: "" | "frozen" | "degraded";
  rates: Rates | null; oldest_ready: number | null; hour: SourceHour | null;
}

/** done: per five minutes. */
export interface SourceHour { done: number[]; failed: number; retried: number; latency_p95_ms: number | null }

export interface SourceDetail extends SourceRow {
  history: number[]; series: Series; failures: TaskRow[];
  schedules: { name: string; words: string; enabled: boolean; next_run: string | null }[];
  known_by: { id: string; short_id: string; host: string; pid: number; release: string }[];
}

export interface WorkerRow {
  id: string; short_id: string; host: string; pid: number; version: string; release: string; since: string | null;
  slots: Record<string, number>; running: number; sources: string[]; schedules: string[]; data_lost: string | null;
  longest: { uuid: string; short_id: string; source: string; label: string; started_at: string | null }[];
  seen: string | null; done_per_minute: number | null; done: number[]; rss: number | null; loop_lag_ms: number | null;
  clock_offset_ms: number | null; lost: { requeued: number; failed: number; held: number } | null; alive: boolean;
}

export interface ScheduleRow {
  name: string; source: string; rule: string; enabled: boolean; next_run: string | null; last_run: string | null;
  run_count: number; owner: "code" | "data"; orphan: boolean; reason: string; args: unknown;
  skipped: Record<string, number>; next: string[]; words: string; revision: string; runs: ScheduleRun[];
  lateness_ms: number | null; status: "active" | "paused" | "orphan" | "invalid" | "over";
  form: { rule: string; tz: string; overlap: string; catch_up: string; grace: number; jitter: number } | null;
}

export interface ScheduleRun { at: string; uuid: string; state: State | "none"; lateness_ms: number | null }
export interface PlanRow { name: string; at: string; wall: string; due: string; mark: "" | "gap" | "first" | "second" }

export interface Plan {
  items: PlanRow[]; load: { at: string; runs: number }[]; words: string; busiest: { at: string; runs: number } | null;
}

export interface FailureRow {
  group: string; source: string; type: string; message: string; place: string; count: number;
  first: string | null; last: string | null; example: string; trend: number[];
}

export interface FailureList {
  items: FailureRow[]; counted: number; as_of: string; total: number; read: number; counted_to: string | null;
}

export interface BulkPreview { count: number; exact: boolean; sample: TaskRow[]; token: string; cursor: string | null }

export interface AttentionRow {
  kind: string; severity: "error" | "warning" | "info"; text: string; size: number; since: string | null;
  source: string | null; group: string | null;
  action: { label: string; method: string; path: string; body: unknown } | null;
  holders: HolderRow[]; last: string | null; trend: number[]; release: string | null;
}

/** A running task that holds a slot of a limit. */
export interface HolderRow { uuid: string; short_id: string; worker: string | null; started_at: string | null }

export interface Series { step: number; at: string[]; series: Record<string, (number | null)[]> }

export interface ReleaseMark { release: string; at: string }
export interface ChartSeries extends Series { marks: ReleaseMark[] }

export interface Overview {
  now: string; counts: Record<string, number>; rates: Rates;
  figures: Record<"latency_p50" | "latency_p95" | "lateness_p99" | "oldest_ready", number | null>;
  history: number[]; attention: AttentionRow[]; more_attention: number; sources: SourceRow[];
  series: Series; releases: string[]; marks: ReleaseMark[]; flows: { n: number; exact: boolean };
}

export interface Status {
  app: string; apps: string[]; environment: string; version: string; releases: string[];
  workers_by_release: Record<string, number>;
  store: { kind: string; server: string | null; round_trip_ms: number; clock_offset_ms: number | null };
  workers: number; slots: number; running: number; failed: number; user: string; role: "viewer" | "operator"; features: string[];
  trace_url: string; now: string; paused: { source: string; key: string | null; reason: string; since: string | null }[];
}

export interface Rows<T> { items: T[] }

export interface TopicRow {
  topic: string; pending: number; oldest: string | null; sent_per_minute: number; failed: number; blocked_keys: number;
  error: string; paused: PauseRow | null;
}

export interface RelayRow { id: string; host: string; pid: number; since: string | null; bus: string; buckets: number[] }

export interface OutboxDetail {
  pending: number; failed: number; topics: TopicRow[]; relays: RelayRow[];
  groups: { group: string; lag: number; members: number }[]; paused: PauseRow | null; handles: Record<string, number>;
  failed_events: EventRow[];
}

export interface EventRow {
  id: string; number: number; topic: string; key: string; type: string; status: string; occurred_at: string;
  sent_at: string | null; correlation_id: string | null; attempts: number; error: string;
}

export interface EventList { items: EventRow[]; cursor: string | null }
export interface PayloadText { text: string; size: number; cut: boolean; headers: Record<string, string> }

export interface DeadLetterRow {
  id: string; event_id: string; at: string | null; topic: string; agent: string; type: string; correlation_id: string;
  error: ErrorText; attempts: number | null; replay: number; task: string;
}

export interface DeadLetterList { items: DeadLetterRow[]; others: number }

export interface AgentRow {
  agent: string; source: string; in_flight: number; running: number; lag: number | null; members: number | null;
  rates: Rates | null; done: number[]; failed: number; retried: number; workers: string[]; paused: PauseRow | null;
}

export interface AgentList { items: AgentRow[]; handles: Record<string, number> }

export interface HandleRow {
  id: string; correlation_id: string; status: string; expected: { types: string[]; count: number }[]; received: number;
  total: number; resumes: string; created_at: string; expires_at: string; ended_at: string | null;
  arrived: { event_id: string; type: string; at: string | null }[];
}

export interface AuditRow {
  id: string; at: string; user: string; role: string; via: string; action: string; target: string; filter: string;
  reason: string; state: string; found: number; done: number; changed: number; error: string;
}

export interface AuditList { items: AuditRow[]; cursor: string | null }

export interface BulkAction {
  id: string; action: string; state: string; filter: string; found: number; done: number; changed: number; rate: number;
  user: string; reason: string; started_at: string; error: string;
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly field: string;

  constructor(status: number, code: string, message: string, field = "") {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

export type Query = Record<string, string | number | undefined>;

export class Api {
  private readonly root: string;
  /** Named in each request, unless it is "". */
  private readonly app: string;

  constructor(base: string, app = "") {
    this.app = app;
    this.root = `${base}api/v1`;
  }

  address(path: string, query: Query = {}): string {
    const words = new URLSearchParams(this.app === "" ? {} : { app: this.app });
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== "") words.set(name, String(value));
    }
    return `${this.root}${path}${words.size > 0 ? `?${words}` : ""}`;
  }

  async get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    const response = await ask(this.address(path, query), { headers: { Accept: "application/json" }, signal });
    return (await response.json()) as T;
  }

  /** The header X-Onthedot tells a request of this page from a form of another one. */
  async send<T>(method: "POST" | "PUT" | "PATCH" | "DELETE", path: string, body: unknown = {}, more: Record<string, string> = {}): Promise<T> {
    const headers = { Accept: "application/json", "Content-Type": "application/json", "X-Onthedot": "1", ...more };
    const response = await ask(this.address(path), { method, headers, body: JSON.stringify(body) });
    return (response.status === 204 ? null : await response.json()) as T;
  }

  /** Why the stream of changes was refused: EventSource does not tell. */
  async probe(): Promise<Refusal> {
    const abort = new AbortController();
    try {
      await ask(this.address("/changes", { watch: "overview" }), { signal: abort.signal });
      return "unavailable";
    } catch (error) {
      if (!(error instanceof ApiError)) return "unavailable";
      if (error.status === 401) return "signed_out";
      if (error.status === 404) return "absent";
      return error.code === "too_many_streams" ? "too_many_streams" : "unavailable";
    } finally {
      abort.abort();
    }
  }
}

async function ask(address: string, options: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "");
  }
  if (response.ok) return response;
  throw await errorOf(response);
}

async function errorOf(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string; field?: string } };
    return new ApiError(response.status, error.code, error.message, error.field);
  } catch {
    return new ApiError(response.status, "unknown", response.statusText);
  }
}
