/** Which rows of a list are new since it was shown. */
import type { TaskList } from "./api.ts";

export interface NewRows {
  n: number;
  /** False: the list has none of the rows that are shown, so there may be more on its next pages. */
  exact: boolean;
}

type Rows = { items: readonly Pick<TaskList["items"][number], "uuid">[]; cursor: string | null };

/** Rows behind the last known one moved up from the next page, when others left the list. */
export function newRows(shown: Rows, latest: Rows): NewRows {
  const known = new Set(shown.items.map(({ uuid }) => uuid));
  const last = latest.items.findLastIndex(({ uuid }) => known.has(uuid));
  const isWhole = shown.cursor === null;
  const among = isWhole || last < 0 ? latest.items : latest.items.slice(0, last);
  return { n: among.filter(({ uuid }) => !known.has(uuid)).length, exact: last >= 0 || latest.cursor === null };
}
