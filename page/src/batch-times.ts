/** The times of a batch: marks on its line, the items that arrived per second, and whether it keeps its deadline. */
import type { BatchDetail, PartRow } from "./api-flows.ts";
import { parseTime } from "./format.ts";

const BINS = 40;

export interface Mark { kind: "first" | "now" | "ended" | "eta" | "deadline"; ms: number; share: number }

/** ms: since the batch was added; share: of the line, which ends at the last mark. */
export function marksOf(detail: BatchDetail, present: number): Mark[] {
  const begin = parseTime(detail.batch.started_at) ?? present;
  const ended = parseTime(detail.batch.ended_at);
  const found = ([
    ["first", parseTime(detail.first_at)],
    [ended === null ? "now" : "ended", ended ?? present],
    ["eta", parseTime(detail.eta)],
    ["deadline", parseTime(detail.deadline)],
  ] as const).flatMap(([kind, at]) => (at === null ? [] : [{ kind, ms: Math.max(0, at - begin) }]));
  const whole = Math.max(1, ...found.map(({ ms }) => ms));
  return found.map((mark) => ({ ...mark, share: mark.ms / whole })).sort((a, b) => a.ms - b.ms);
}

/** Items per second in equal spans, from the add of the batch to `end`. */
export function arrivals(parts: readonly PartRow[], begin: number, end: number): number[] {
  const span = Math.max(1, end - begin) / BINS;
  const found = new Array<number>(BINS).fill(0);
  for (const part of parts) {
    const at = parseTime(part.ended_at);
    if (at === null) continue;
    const bin = Math.min(BINS - 1, Math.max(0, Math.floor((at - begin) / span)));
    found[bin] = (found[bin] ?? 0) + part.items * (1000 / span);
  }
  return found;
}

/** null: there is no deadline, nothing to estimate the end by, or an end that is not for a result. */
export function deadlineState({ batch, deadline, eta }: BatchDetail, present: number): "onTrack" | "late" | "kept" | "missed" | null {
  const until = parseTime(deadline);
  if (until === null) return null;
  const ended = parseTime(batch.ended_at);
  if (ended !== null) {
    if (ended > until) return "missed";
    return batch.state === "succeeded" ? "kept" : null;
  }
  if (present > until) return "late";
  const end = parseTime(eta);
  if (end === null) return null;
  return end > until ? "late" : "onTrack";
}
