/** j, k and Enter in a table whose rows open a page. */
import { useEffect, useRef, useState } from "preact/hooks";
import { onKey } from "./keys.ts";
import { router } from "./session.ts";

const KEPT = "path";

/** paths: of the rows, in their order. Returns the row that is chosen, or -1. */
export function useRowKeys(paths: readonly string[]): number {
  const [current, choose] = useState(-1);
  const chosen = useRef(-1); // at once: the next key may come before the row is drawn
  useEffect(() => {
    const set = (index: number) => {
      chosen.current = index;
      choose(index);
    };
    const move = (step: number) => () => {
      set(Math.max(0, Math.min(paths.length - 1, chosen.current + step)));
      router.keep(KEPT, paths[chosen.current]);
    };
    const kept = router.recall<string>(KEPT);
    if (chosen.current === -1 && kept !== undefined) set(paths.indexOf(kept));
    const stops = [
      onKey("j", move(1)),
      onKey("k", move(-1)),
      onKey("Enter", (event) => {
        const path = paths[chosen.current];
        if (event.target !== document.body) (event.target as HTMLElement).click();
        else if (path !== undefined) router.go(path);
      }),
    ];
    return () => stops.forEach((stop) => stop());
  }, [paths.join(" ")]);
  useEffect(() => {
    document.querySelector("tr.current")?.scrollIntoView({ block: "nearest" });
  }, [current]);
  return current;
}
