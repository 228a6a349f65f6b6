/** The texts of the overview and of charts. */
import { plural } from "./plural.ts";

export const overviewTexts = {
  tiles: { done: "Done", latency: "Latency p95", oldest: "Oldest ready", lateness: "Lateness p99" },
  perSecond: "/s",
  attention: "Needs attention",
  moreAttention: (n: number) => `and ${n} more`,
  unserved: (name: string, n: number) => `${plural(n, "task", "tasks")} of ${name} ready, and no live worker knows it`,
  isPaused: (name: string, reason: string) => (reason ? `${name} is paused: ${reason}` : `${name} is paused for some keys`),
  failedKept: (n: number) => `${plural(n, "failed task is kept", "failed tasks are kept")}`,
  onTheDot: "All on the dot.",
  onTheDotText: "Nothing needs attention.",
  noWorkers: "No worker is alive: tasks are kept and nothing runs.",
  noWorkersCode: "onthedot worker app.py",
  done: (label: string) => `Done: ${label}`,
  throughput: "Ended per second, last minute",
  sourcesWorstFirst: "Sources, worst first",
};
