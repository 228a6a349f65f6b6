/** Keys of the whole page. None while somebody types. */
import { router } from "./session.ts";
import { pathOf } from "./router.ts";

export type KeyAction = (event: KeyboardEvent) => void;

const GO: Record<string, string> = {
  o: "overview", t: "tasks", f: "failed", s: "sources", c: "schedules", w: "workers", l: "flows", b: "batches",
};
const SEQUENCE_TIME = 1500;

const actions = new Map<string, KeyAction[]>();

/** The newest action of a key wins, so that a dialog can take keys from its page. */
export function onKey(key: string, action: KeyAction): () => void {
  const list = actions.get(key) ?? [];
  actions.set(key, [...list, action]);
  return () => actions.set(key, (actions.get(key) ?? []).filter((other) => other !== action));
}

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function listenToKeys(): void {
  let goUntil = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key !== "Escape" && isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.timeStamp < goUntil && GO[event.key]) {
      goUntil = 0;
      event.preventDefault();
      router.go(pathOf(GO[event.key] ?? ""));
      return;
    }
    if (event.key === "g") {
      goUntil = event.timeStamp + SEQUENCE_TIME;
      return;
    }
    const action = actions.get(event.key)?.at(-1);
    if (action) {
      event.preventDefault();
      action(event);
    }
  });
}
