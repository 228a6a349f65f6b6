/** Every text that people see only on the page of one task: a part of `messages`. */
import { count } from "./format.ts";

export const taskTexts = {
  change: "Change limit…",
  signal: "Signal…",
  holders: (n: number) => (n === 1 ? "Held by 1:" : `Held by ${count(n)}:`),
  worker: (id: string) => `worker ${id}`,
  release: "Release",
  waitsFor: "Waits for",
  waitsForTasks: (reached: string, needed: string) => `${reached} of ${needed} tasks have ended`,
  related: "Related",
  same: { error: "Same error", argument: (name: string) => `Same ${name}`, schedule: "Same schedule" },
  number: (n: number, exact: boolean) => (exact ? count(n) : `${count(n)}+`),
  cut: (shown: string, size: string) => `The first ${shown} of ${size} characters. The download has all of it.`,
  streamed: "Streamed items",
  streamedNow: (n: number) => `${count(n)} so far`,
  moreItems: "Show more items",
  restarted: "A new run has begun the stream again.",
  raw: "raw",
  paused: (user: string, reason: string) => (reason === "" ? user : `${user}: ${reason}`),
};
