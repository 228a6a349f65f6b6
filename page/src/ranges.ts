/** The time that charts show. It is in the address, as `since`; without it, one hour. */

export const RANGES = ["live", "1h", "6h", "24h", "7d", "62d"] as const;
export type Range = (typeof RANGES)[number];

const USUAL: Range = "1h";

/** Seconds of one point. Minutes are kept for 6 hours, ten minutes for 3 days, hours for 62 days. */
export const STEPS: Record<Range, number> = { live: 1, "1h": 60, "6h": 60, "24h": 600, "7d": 3600, "62d": 3600 };

export function rangeOf(query: URLSearchParams): Range {
  const given = query.get("since");
  return RANGES.find((range) => range === given) ?? USUAL;
}

/** What the address holds for a range. */
export function sinceOf(range: Range): string | undefined {
  return range === USUAL ? undefined : range;
}

export interface Mark { at: number; name: string }
export interface ShownMark extends Mark { place: number }

/** The marks within a chart, in seconds. The place of one in the last span, which goes on, is the beginning of that. */
export function marksWithin(marks: readonly Mark[], at: readonly number[]): ShownMark[] {
  const first = at[0];
  const last = at.at(-1);
  if (first === undefined || last === undefined) return [];
  const span = last - (at.at(-2) ?? last);
  return marks.filter((mark) => mark.at >= first && mark.at < last + span).map((mark) => ({ ...mark, place: Math.min(mark.at, last) }));
}
