/** The data of a page: fetched, kept while it is fetched again, and refreshed by messages of the stream. */
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ApiError, type Query } from "./api.ts";
import { atMostEvery, type Invalidated, type MessageName } from "./live.ts";
import { api, isHeld, live, noteFailure, noteSuccess, onMessage } from "./session.ts";

export interface View<T> {
  data: Signal<T | null>;
  error: Signal<ApiError | null>;
  /** At most as often as the page allows; `reload(true)`: at once. */
  reload: (now?: boolean) => void;
}

export interface ViewOptions {
  /** Of the stream, such as `watch=overview`; empty: this page opens no stream. */
  watch: string;
  /** Messages after which the data is fetched again. */
  on: readonly MessageName[];
  /** What of an `invalidate` concerns this page; without it, everything. */
  invalidatedBy?: readonly Invalidated[];
  /** Milliseconds between two fetches. */
  pause?: number;
  /** Of data that may be long: a pause lasts at least this many times as long as the last fetch, at most ten seconds. */
  load?: number;
  /** Milliseconds after which the data is fetched even without a message. */
  every?: number;
}

const LONGEST_PAUSE = 10_000;
const clock = { now: () => Date.now(), setTimeout: (action: () => void, ms: number) => window.setTimeout(action, ms) };

/** A stream of one task, flow or batch is refused if there is none. */
const OF_ONE = /&(uu)?id=/;
/** Of pages that show nothing of the store, so that the head knows its connection. */
export const ANY = "watch=overview";

export function useView<T>(path: string, query: Query, options: ViewOptions): View<T> {
  const key = JSON.stringify([path, query]);
  const view = useMemo(() => makeView<T>(path, query, options.watch, options.pause ?? 1000, options.load ?? 0), [key]);
  useEffect(() => {
    view.open();
    live.follow(options.watch);
    const concerns = (name: MessageName, data: unknown) => name !== "invalidate"
      || options.invalidatedBy === undefined || options.invalidatedBy.includes((data as { what: Invalidated }).what);
    const stop = onMessage((name, data) => {
      if (isHeld.value) return;
      if (name === "reset") view.reload(true);
      else if (options.on.includes(name) && concerns(name, data)) view.reload();
    });
    const timer = options.every ? window.setInterval(() => {
      if (!document.hidden && !isHeld.value) view.reload();
    }, options.every) : 0;
    return () => {
      stop();
      window.clearInterval(timer);
      view.close();
    };
  }, [view, options.watch]);
  return view;
}

function makeView<T>(path: string, query: Query, watch: string, pause: number, times: number) {
  const data = signal<T | null>(null);
  const error = signal<ApiError | null>(null);
  let abort: AbortController | null = null;
  let isOpen = false;
  let isAgain = false;
  let took = 0;

  async function load(): Promise<void> {
    if (!isOpen) return;
    if (abort !== null) {
      isAgain = true;
      return;
    }
    const mine = new AbortController();
    abort = mine;
    const began = performance.now();
    try {
      const found = await api.get<T>(path, query, mine.signal);
      if (!mine.signal.aborted) {
        data.value = found;
        error.value = null;
        noteSuccess();
      }
    } catch (failure) {
      if (mine.signal.aborted) return;
      if (failure instanceof ApiError) error.value = failure;
      if (error.value?.status === 404 && OF_ONE.test(watch)) live.follow(ANY);
      noteFailure(failure);
    } finally {
      if (abort === mine) abort = null;
      took = performance.now() - began;
      if (isAgain) {
        isAgain = false;
        soon();
      }
    }
  }

  const soon = atMostEvery(() => Math.max(pause, Math.min(times * took, LONGEST_PAUSE)), () => void load(), clock);
  return {
    data,
    error,
    reload: (atOnce = false) => (atOnce ? void load() : soon()),
    open: () => {
      isOpen = true;
      soon();
    },
    close: () => {
      isOpen = false;
      abort?.abort();
      abort = null;
    },
  };
}
