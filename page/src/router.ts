/** Paths below the prefix under which the page is mounted. No framework: one signal and one table. */
import { signal } from "@preact/signals";

export type PageName =
  | "overview" | "tasks" | "task" | "failed" | "sources" | "source" | "schedules" | "workers"
  | "flows" | "flow" | "batches" | "batch" | "waiting" | "outbox" | "agents" | "audit" | "login" | "missing";

export interface Location {
  page: PageName;
  /** The variable part of the path, decoded: a uuid, the name of a source. */
  id: string;
  query: URLSearchParams;
}

const TABLE: readonly (readonly [RegExp, PageName])[] = [
  [/^$/, "overview"],
  [/^tasks$/, "tasks"],
  [/^tasks\/([^/]+)$/, "task"],
  [/^failed$/, "failed"],
  [/^sources$/, "sources"],
  [/^sources\/([^/]+)$/, "source"],
  [/^schedules$/, "schedules"],
  [/^workers$/, "workers"],
  [/^flows$/, "flows"],
  [/^flows\/([^/]+)$/, "flow"],
  [/^batches$/, "batches"],
  [/^batches\/([^/]+)$/, "batch"],
  [/^waiting$/, "waiting"],
  [/^outbox$/, "outbox"],
  [/^agents$/, "agents"],
  [/^audit$/, "audit"],
  [/^login$/, "login"],
];

/** base: the prefix with a slash at its end. */
export function parse(path: string, search: string, base: string): Location {
  const query = new URLSearchParams(search);
  query.delete("app"); // of the tab, not of the page
  if (path !== base.slice(0, -1) && !path.startsWith(base)) return { page: "missing", id: "", query };
  const rest = path.slice(base.length).replace(/\/$/, "");
  for (const [pattern, page] of TABLE) {
    const match = pattern.exec(rest);
    if (!match) continue;
    try {
      return { page, id: decodeURIComponent(match[1] ?? ""), query };
    } catch {
      break; // a stray percent sign
    }
  }
  return { page: "missing", id: "", query };
}

/** A path of the page, relative to its base: `hrefOf("tasks", "018f…", {q: "state:failed"})`. */
export function pathOf(page: string, id = "", query: Record<string, string | undefined> = {}): string {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") words.set(name, value);
  }
  const tail = words.size > 0 ? `?${words}` : "";
  const head = page === "overview" ? "" : page;
  return `${id === "" ? head : `${head}/${encodeURIComponent(id)}`}${tail}`;
}

/** An address with more words in its query. */
export function withQuery(address: string, words: string): string {
  if (words === "") return address;
  return `${address}${address.includes("?") ? "&" : "?"}${words}`;
}

/** An entry of the history of this tab. */
interface Entry {
  scroll: number;
  /** What a page keeps for the back button, by name. */
  values: Record<string, unknown>;
}

const STORED = "onthedot.entries";
const RESTORES_FOR = 3000;
const MOST_ENTRIES = 50;

export class Router {
  readonly base: string;
  /** The app of this tab, where a server shows several; "": the first one. */
  readonly app: string;
  readonly location;
  private readonly entries = new Map<number, Entry>();
  private number = 0;

  constructor(base: string, path: string, search: string) {
    this.base = base.endsWith("/") ? base : `${base}/`;
    this.app = new URLSearchParams(search).get("app") ?? "";
    this.location = signal(parse(path, search, this.base));
  }

  /** The address of a path of the page, in the app of this tab or another one. */
  address(path: string, app = this.app): string {
    return this.base + withQuery(path, app === "" ? "" : new URLSearchParams({ app }).toString());
  }

  /** Follows the address bar, the back button, and clicks on links of the page. */
  listen(window: Window): void {
    history.scrollRestoration = "manual"; // the browser would scroll before the data is there
    this.readEntries();
    window.addEventListener("pagehide", () => this.storeEntries());
    window.addEventListener("popstate", (event) => {
      this.entry().scroll = window.scrollY;
      this.number = numberOf(event.state);
      this.location.value = parse(window.location.pathname, window.location.search, this.base);
      scrollWhenPossible(this.entry().scroll);
    });
    window.document.addEventListener("click", (event) => {
      const link = (event.target as Element | null)?.closest?.("a[data-route]");
      if (!link || event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.go(link.getAttribute("data-route") ?? "");
    });
  }

  /** A value of the entry of the history that is shown: there again after the back button, and after a reload. */
  recall<T>(name: string): T | undefined {
    return this.entry().values[name] as T | undefined;
  }

  keep(name: string, value: unknown): void {
    this.entry().values[name] = value;
  }

  private entry(): Entry {
    const found = this.entries.get(this.number) ?? { scroll: 0, values: {} };
    this.entries.set(this.number, found);
    return found;
  }

  private readEntries(): void {
    this.number = numberOf(history.state);
    const stored = JSON.parse(sessionStorage.getItem(STORED) ?? "[]") as [number, Entry][];
    for (const [number, entry] of stored) this.entries.set(number, entry);
    scrollWhenPossible(this.entry().scroll);
  }

  private storeEntries(): void {
    this.entry().scroll = window.scrollY;
    sessionStorage.setItem(STORED, JSON.stringify([...this.entries].slice(-MOST_ENTRIES)));
  }

  go(path: string, { replace = false } = {}): void {
    const url = this.address(path);
    const before = this.location.value;
    this.entry().scroll = window.scrollY;
    if (replace) {
      history.replaceState(history.state, "", url);
    } else {
      this.number = Math.max(this.number, ...this.entries.keys()) + 1;
      history.pushState({ number: this.number }, "", url);
    }
    const { pathname, search } = new URL(url, window.location.href);
    const location = parse(pathname, search, this.base);
    this.location.value = location;
    if (location.page !== before.page || location.id !== before.id) window.scrollTo(0, 0);
  }
}

function numberOf(state: unknown): number {
  return (state as { number?: number } | null)?.number ?? 0;
}

/** As soon as the page is long enough, unless somebody scrolls first. */
function scrollWhenPossible(top: number): void {
  if (top === 0) return;
  const until = performance.now() + RESTORES_FOR;
  const abort = new AbortController();
  for (const event of ["wheel", "keydown", "pointerdown", "popstate"]) {
    window.addEventListener(event, () => abort.abort(), { signal: abort.signal, passive: true });
  }
  const look = () => {
    if (abort.signal.aborted) return;
    const { scrollHeight, clientHeight } = document.documentElement;
    const isPossible = scrollHeight - clientHeight >= top;
    if (isPossible) window.scrollTo(0, top);
    if (isPossible || performance.now() > until) abort.abort();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}
