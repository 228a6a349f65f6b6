/** j, k and Enter in lists whose rows have links and buttons: the row takes the focus, Enter opens it. */
import { useEffect } from "preact/hooks";
import { onKey } from "./keys.ts";
import { router } from "./session.ts";

const ROWS = "main :is(table.cards > tbody > tr:not(.detail, .runs-line), .groups > li)";
/** What Enter presses: what is marked so, else the first link. Never a change, which needs a look at its button. */
const CONTROLS = ["[data-open]", "a[data-route]"];
const KEPT = "row";

export function useListKeys(): void {
  useEffect(() => {
    let last: HTMLElement | null = null;
    const rows = () => [...document.querySelectorAll<HTMLElement>(ROWS)];
    const focus = (row: HTMLElement | undefined, index: number) => {
      if (!row) return;
      last = row;
      row.tabIndex = -1;
      row.focus();
      row.scrollIntoView({ block: "nearest" });
      router.keep(KEPT, index);
    };
    const move = (step: number) => () => {
      const all = rows();
      const at = last === null ? -1 : all.indexOf(last);
      const before = at >= 0 ? at : router.recall<number>(KEPT) ?? -1;
      const index = Math.max(0, Math.min(all.length - 1, before + step));
      focus(all[index], index);
    };
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (target === document.body) return;
      const control = target.matches(ROWS) ? CONTROLS.map((each) => target.querySelector<HTMLElement>(each)).find(Boolean) : target;
      control?.click();
    };
    const stops = [onKey("j", move(1)), onKey("k", move(-1)), onKey("Enter", press)];
    const kept = router.recall<number>(KEPT);
    const restore = kept === undefined ? undefined : whenThere(rows, kept, (row) => document.activeElement === document.body && focus(row, kept));
    return () => {
      stops.forEach((stop) => stop());
      restore?.();
    };
  }, []);
}

/** The rows come with the data of the page. */
function whenThere(rows: () => readonly HTMLElement[], index: number, found: (row: HTMLElement) => void): () => void {
  const observer = new MutationObserver(() => {
    const row = rows()[index];
    if (!row) return;
    observer.disconnect();
    found(row);
  });
  observer.observe(document.body, { childList: true, subtree: true });
  return () => observer.disconnect();
}
