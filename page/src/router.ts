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

export class Router {
  readonly base: string;
  readonly location;

  constructor(base: string, path: string, search: string) {
    this.base = base.endsWith("/") ? base : `${base}/`;
    this.location = signal(parse(path, search, this.base));
  }

  /** Follows the address bar, the back button, and clicks on links of the page. */
  listen(window: Window): void {
    const read = () => {
      this.location.value = parse(window.location.pathname, window.location.search, this.base);
    };
    window.addEventListener("popstate", read);
    window.document.addEventListener("click", (event) => {
      const link = (event.target as Element | null)?.closest?.("a[data-route]");
      if (!link || event.defaultPrevented || event.button !== 0) return;
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.go(link.getAttribute("data-route") ?? "");
      window.scrollTo(0, 0);
    });
  }

  go(path: string, { replace = false } = {}): void {
    const url = this.base + path;
    if (replace) history.replaceState(null, "", url);
    else history.pushState(null, "", url);
    const { pathname, search } = new URL(url, window.location.href);
    this.location.value = parse(pathname, search, this.base);
  }
}
