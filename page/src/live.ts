/** One stream of changes per tab: opens again after errors, closes in hidden tabs, hands messages on. */
import { signal } from "@preact/signals";
import { withQuery } from "./router.ts";

export type Connection =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "reconnecting"; since: number }
  | { state: "hidden" }
  | { state: "polling"; seconds: number }
  | { state: "signed_out" };

/** The part of EventSource that is used, so that a test can give its own. */
export interface Source {
  onopen: (() => void) | null;
  onerror: (() => void) | null;
  readonly readyState: number;
  addEventListener(type: string, listener: (event: { data: string; lastEventId: string }) => void): void;
  close(): void;
}

export interface Surroundings {
  open(url: string): Source;
  now(): number;
  setTimeout(action: () => void, ms: number): number;
  clearTimeout(timer: number): void;
  /** Why a stream was refused: EventSource does not tell. */
  probe(): Promise<Refusal>;
}

/** absent: this server has no stream. */
export type Refusal = "signed_out" | "too_many_streams" | "absent" | "unavailable";

export const MESSAGES = [
  "hello", "counts", "rates", "transitions", "task", "flow", "batch", "attention", "invalidate", "bulk_action",
  "store", "reset", "bye",
] as const;
export type MessageName = (typeof MESSAGES)[number];
/** The `what` of a message `invalidate`. */
export type Invalidated = "limits" | "schedules" | "workers" | "sources" | "failures" | "outbox";
export type Listener = (name: MessageName, data: unknown) => void;

const CLOSED = 2;
const HIDDEN_FOR = 5000;
const POLL_EVERY = 5000;
const POLL_ABSENT = 2000;
const RETRY_FIRST = 1000;
const RETRY_LAST = 15_000;

export class LiveStream {
  readonly connection = signal<Connection>({ state: "connecting" });
  private source: Source | null = null;
  private watch = "";
  /** A new EventSource cannot send the last id: the view is fetched again instead. */
  private hasGap = false;
  private retryTimer = 0;
  private hideTimer = 0;
  private failures = 0;
  private isHidden = false;
  private isAbsent = false;
  private readonly address: string;
  private readonly surroundings: Surroundings;
  private readonly listener: Listener;

  constructor(address: string, surroundings: Surroundings, listener: Listener) {
    this.address = address;
    this.surroundings = surroundings;
    this.listener = listener;
  }

  /** watch: a query string such as `watch=task&uuid=…`. A change of view opens the stream again. */
  follow(watch: string): void {
    if (watch === this.watch && (this.source || this.isAbsent)) return;
    this.watch = watch;
    this.hasGap = this.isHidden;
    this.failures = 0;
    if (!this.isHidden) this.open();
  }

  /** A hidden tab gives its connection back after five seconds, and takes none at first: a browser has six per host. */
  setHidden(hidden: boolean): void {
    this.surroundings.clearTimeout(this.hideTimer);
    if (hidden) {
      const hide = () => {
        this.isHidden = true;
        this.hasGap = true;
        this.close();
        this.connection.value = { state: "hidden" };
      };
      if (this.watch === "") hide();
      else this.hideTimer = this.surroundings.setTimeout(hide, HIDDEN_FOR);
    } else if (this.isHidden) {
      this.isHidden = false;
      this.open();
    }
  }

  /** After signing in. */
  restart(): void {
    this.failures = 0;
    this.open();
  }

  close(): void {
    this.surroundings.clearTimeout(this.retryTimer);
    this.source?.close();
    this.source = null;
  }

  private open(): void {
    this.close();
    if (this.watch === "") return;
    if (this.isAbsent) {
      this.poll();
      return;
    }
    const source = this.surroundings.open(withQuery(this.address, this.watch));
    this.source = source;
    source.onopen = () => {
      this.failures = 0;
      this.connection.value = { state: "live" };
      if (this.hasGap) this.listener("reset", null);
      this.hasGap = false;
    };
    source.onerror = () => this.onError(source);
    for (const name of MESSAGES) {
      source.addEventListener(name, (event) => {
        if (source !== this.source) return;
        this.listener(name, event.data === "" ? null : JSON.parse(event.data));
      });
    }
  }

  /** EventSource connects again by itself unless the server refused it. */
  private onError(source: Source): void {
    if (source !== this.source) return;
    const before = this.connection.value;
    if (before.state !== "reconnecting") {
      this.connection.value = { state: "reconnecting", since: this.surroundings.now() };
    }
    if (source.readyState === CLOSED) {
      this.close();
      this.hasGap = true;
      void this.surroundings.probe().then((reason) => this.onRefused(reason));
    }
  }

  private onRefused(reason: Refusal): void {
    if (this.source || this.isHidden) return;
    if (reason === "signed_out") {
      this.connection.value = { state: "signed_out" };
      return;
    }
    if (reason === "absent") {
      this.isAbsent = true;
      this.poll();
      return;
    }
    this.failures += 1;
    if (reason === "too_many_streams") {
      this.connection.value = { state: "polling", seconds: POLL_EVERY / 1000 };
      this.listener("reset", null);
    }
    const pause = reason === "too_many_streams" ? POLL_EVERY : Math.min(RETRY_LAST, RETRY_FIRST * 2 ** (this.failures - 1));
    this.retryTimer = this.surroundings.setTimeout(() => this.open(), pause);
  }

  private poll(): void {
    this.connection.value = { state: "polling", seconds: POLL_ABSENT / 1000 };
    this.retryTimer = this.surroundings.setTimeout(() => {
      this.listener("reset", null);
      this.poll();
    }, POLL_ABSENT);
  }
}

export interface Transition {
  at: string;
  uuid: string;
  source: string;
  state: string;
}

/** The transitions of a message: a list, or a list beside `more`. */
export function transitionsOf(data: unknown): readonly Transition[] {
  if (Array.isArray(data)) return data as Transition[];
  const found = (data as { transitions?: unknown; items?: unknown } | null)?.transitions ?? (data as { items?: unknown } | null)?.items;
  return Array.isArray(found) ? (found as Transition[]) : [];
}

/** By source and state. */
export type CountsMessage = Record<string, Record<string, number>>;

/** The tasks of all sources; those that are parked count as ready. */
export function countsByState(message: CountsMessage): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const ofSource of Object.values(message)) {
    for (const [state, number] of Object.entries(ofSource)) {
      const shown = state === "parked" ? "ready" : state;
      counts[shown] = (counts[shown] ?? 0) + number;
    }
  }
  return counts;
}

/** The newest state per task, so that a row that changed three times since the last frame is painted once. */
export function newestStates(transitions: readonly Transition[]): Map<string, Transition> {
  const newest = new Map<string, Transition>();
  for (const transition of transitions) newest.set(transition.uuid, transition);
  return newest;
}

/** Calls `action` at most once per `pause()` ms: at once, and again at the end of the pause if it was asked for meanwhile. */
export function atMostEvery(pause: () => number, action: () => void, surroundings: Pick<Surroundings, "now" | "setTimeout">): () => void {
  let last = -Infinity;
  let isPlanned = false;
  const run = () => {
    isPlanned = false;
    last = surroundings.now();
    action();
  };
  return () => {
    if (isPlanned) return;
    const rest = last + pause() - surroundings.now();
    if (rest <= 0) {
      run();
      return;
    }
    isPlanned = true;
    surroundings.setTimeout(run, rest);
  };
}
