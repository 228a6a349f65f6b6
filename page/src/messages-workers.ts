/** Every text that people see on the page of workers: a part of `messages`. */
import { count, duration } from "./format.ts";
import { plural } from "./plural.ts";

export const workerTexts = {
  alive: "Alive",
  died: "Died",
  donePerMinute: "Done/min",
  loopLag: "Loop lag p99",
  memory: "Memory",
  runs: "running:",
  andMore: (n: number) => `and ${count(n)} more`,
  taskOf: (source: string, age: string) => `${source}, ${age}`,
  clockAhead: (ms: number) => `clock ${duration(Math.abs(ms))} ${ms > 0 ? "ahead of" : "behind"} the store's`,
  dataLost: "the store has lost data",
  mixed: (n: number) => `${plural(n, "release runs", "releases run")} at the same time`,
  seen: (time: string) => `last seen at ${time}`,
  nothingLost: "no task was lost",
  requeued: (n: number) => `${plural(n, "task", "tasks")} requeued`,
  failed: (n: number) => `${count(n)} failed (crash limit)`,
  held: (n: number) => `${count(n)} not released yet`,
};
