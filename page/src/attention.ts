/** Where an attention item leads: the page on which an operator deals with it. */
import type { AttentionRow } from "./api.ts";
import { parse, pathOf } from "./router.ts";

type Item = Pick<AttentionRow, "kind" | "source" | "group" | "action">;

const PAGES: Record<string, string> = { outbox: "outbox", schedule: "schedules", dead: "workers" };

/** A path below the base of the page; null: no page has more than the item itself. */
export function pathOfItem({ kind, source, group, action }: Item): string | null {
  if (group) return pathOf("tasks", "", { q: `group:${group} state:failed` });
  if (action?.method === "GET") {
    const view = pathOfView(action.path);
    if (view !== null) return view;
  }
  const page = PAGES[kind.split("_")[0] ?? ""];
  if (page !== undefined) return page;
  return source ? pathOf("sources", source) : null;
}

/** Views of the API have the names of the pages; a schedule is a row of its list. */
function pathOfView(path: string): string | null {
  const schedule = /^\/schedules\/([^/?]+)$/.exec(path)?.[1];
  if (schedule !== undefined) return pathOf("schedules", "", { open: decoded(schedule) });
  const [head = "", search = ""] = path.split("?");
  return parse(head, search, "/").page === "missing" ? null : path.slice(1);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray percent sign
  }
}
