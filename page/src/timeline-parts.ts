/** The parts of a timeline: segments, with the pauses cut out of them, and widths that add up to one. */
import type { Segment } from "./api.ts";
import { parseTime } from "./format.ts";

const SMALLEST = 0.02;

export interface Part {
  kind: Segment["kind"] | "paused"; attempt: number; worker: string | null; text: string;
  from: number; to: number; isOpen: boolean; share: number;
}

type Span = Omit<Part, "share">;

/** Widths by duration, but none below two per cent. */
export function partsOf(segments: readonly Segment[], present: number): Part[] {
  const spans = segments.flatMap((segment) => withPauses(segment, present));
  const total = spans.reduce((sum, { from, to }) => sum + (to - from), 0);
  const raw = spans.map(({ from, to }) => Math.max(SMALLEST, total > 0 ? (to - from) / total : 1));
  const sum = raw.reduce((all, share) => all + share, 0);
  return spans.map((span, i) => ({ ...span, share: (raw[i] ?? 0) / sum }));
}

function withPauses({ from, to, kind, attempt, worker, text, paused }: Segment, present: number): Span[] {
  const begin = parseTime(from) ?? present;
  const end = Math.max(begin, parseTime(to) ?? present);
  const base = { attempt, worker };
  const spans: Span[] = [];
  let at = begin;
  for (const pause of paused) {
    const pauseBegin = Math.max(at, parseTime(pause.from) ?? at);
    const pauseEnd = Math.min(end, parseTime(pause.to) ?? end);
    if (pauseEnd <= pauseBegin) continue;
    if (pauseBegin > at) spans.push({ ...base, kind, text, from: at, to: pauseBegin, isOpen: false });
    const why = pause.reason === "" || pause.reason.startsWith(`${pause.user}: `) ? pause.reason || pause.user : `${pause.user}: ${pause.reason}`;
    spans.push({ ...base, kind: "paused", text: why, from: pauseBegin, to: pauseEnd, isOpen: to === null && pauseEnd === end });
    at = pauseEnd;
  }
  if (at < end || spans.length === 0) spans.push({ ...base, kind, text, from: at, to: end, isOpen: to === null });
  return spans;
}
