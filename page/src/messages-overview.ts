/** The texts of the overview and of charts. */
import { count } from "./format.ts";
import { plural } from "./plural.ts";

export const overviewTexts = {
  tiles: { done: "Done", latency: "Latency p95", oldest: "Oldest ready", lateness: "Lateness p99", failedHour: "Failed, last hour", retriedHour: "Retried, last hour", batches: "Batches in progress", flows: "Flows in progress" },
  perSecond: "/s",
  span: (first: string, last: string) => `${first}–${last}`,
  atLeast: (n: number) => `${count(n)}+`,
  retryMany: (n: number) => `Retry ${count(n)}…`,
  attention: "Needs attention",
  allAfter: (release: string) => `All after release ${release}`,
  failedLastHour: (n: number) => `${plural(n, "failure", "failures")} in the last hour`,
  moreAttention: (n: number) => `and ${n} more`,
  unserved: (name: string, n: number) => `${plural(n, "task", "tasks")} of ${name} ready, and no live worker knows it`,
  isPaused: (name: string, reason: string) => (reason ? `${name} is paused: ${reason}` : `${name} is paused for some keys`),
  failedKept: (n: number) => `${plural(n, "failed task is kept", "failed tasks are kept")}`,
  onTheDot: "All on the dot.",
  onTheDotText: "Nothing needs attention.",
  noWorkers: "No worker is alive: tasks are kept and nothing runs.",
  noWorkersCode: "onthedot worker app.py",
  done: (label: string) => `Done: ${label}`,
  charts: "Charts over time",
  ranges: { live: "Live", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "62d": "62 d" },
  endedPer: (step: number) => `Ended per ${({ 1: "second", 60: "minute", 600: "ten minutes", 3600: "hour" } as Record<number, string>)[step] ?? `${step} s`}`,
  sourcesWorstFirst: "Sources, worst first",
};
