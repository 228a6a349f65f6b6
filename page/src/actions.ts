/** The bulk actions that a tab shows: its own until they are closed, those of others while they run. */
import type { BulkAction } from "./api.ts";

/** own: of this tab; panel: also of this tab, shown by a part of its page; other: of another tab or program. */
export type Origin = "own" | "panel" | "other";
export interface ShownAction extends BulkAction { origin: Origin }

export function isOver({ state }: Pick<BulkAction, "state">): boolean {
  return state !== "running" && state !== "stopping";
}

/** With this news of an action. `origin` is that of a new one; a message may come before the answer to its own tab. */
export function withAction(shown: readonly ShownAction[], news: BulkAction, origin: Origin = "other"): readonly ShownAction[] {
  const known = shown.find(({ id }) => id === news.id);
  if (known === undefined) return origin === "other" && isOver(news) ? shown : [...shown, { ...news, origin }];
  const newest = isOlder(news, known) ? known : news;
  return shown.map((each) => (each === known ? { ...newest, origin: origin === "other" ? known.origin : origin } : each));
}

/** An answer of the API can come after a message that was sent later. */
function isOlder(news: BulkAction, known: BulkAction): boolean {
  return news.done < known.done || (isOver(known) && !isOver(news));
}

export function withoutAction(shown: readonly ShownAction[], id: string): readonly ShownAction[] {
  return shown.filter((each) => each.id !== id);
}
