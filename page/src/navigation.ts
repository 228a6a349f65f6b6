/** The pages of the navigation, in their order. A new page is one more line. */
import type { IconName } from "./components/icon.tsx";
import type { t } from "./messages.ts";
import type { PageName } from "./router.ts";

export interface Entry {
  page: PageName & keyof typeof t.pages;
  icon: IconName;
  /** After `g`. */
  key: string;
  /** Of `/status`: the page is hidden in stores without it. */
  feature?: string;
}

export const ENTRIES: readonly Entry[] = [
  { page: "overview", icon: "overview", key: "o" },
  { page: "tasks", icon: "tasks", key: "t" },
  { page: "failed", icon: "failed", key: "f" },
  { page: "sources", icon: "sources", key: "s" },
  { page: "schedules", icon: "schedules", key: "c" },
  { page: "workers", icon: "workers", key: "w" },
  { page: "flows", icon: "flows", key: "l", feature: "flows" },
  { page: "batches", icon: "batches", key: "b", feature: "batches" },
  { page: "waiting", icon: "waiting", key: "i", feature: "waiting" },
  { page: "outbox", icon: "outbox", key: "x", feature: "outbox" },
  { page: "agents", icon: "agents", key: "a", feature: "outbox" },
  { page: "audit", icon: "audit", key: "u" },
];

/** In the bar of a phone; the others are behind its last button. */
export const ON_PHONES = 4;

/** features: undefined: not known yet. */
export function visibleEntries(features: readonly string[] | undefined): readonly Entry[] {
  return ENTRIES.filter(({ feature }) => feature === undefined || features?.includes(feature));
}

const PARENTS: Partial<Record<PageName, PageName>> = { task: "tasks", source: "sources", flow: "flows", batch: "batches" };

/** Whether the entry is the page that is shown, or the list above it. */
export function isCurrent(entry: Entry, page: PageName): boolean {
  return (PARENTS[page] ?? page) === entry.page;
}
