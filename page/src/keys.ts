/** Keys of the whole page. None while somebody types. */
import { ENTRIES } from "./navigation.ts";
import { pathOf } from "./router.ts";
import { router } from "./session.ts";

export type KeyAction = (event: KeyboardEvent) => void;

const GO = new Map<string, string>(ENTRIES.map(({ key, page }) => [key, page]));
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
    const page = GO.get(event.key);
    if (event.timeStamp < goUntil && page !== undefined) {
      goUntil = 0;
      event.preventDefault();
      router.go(pathOf(page));
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
