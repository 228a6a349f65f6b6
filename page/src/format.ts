/** Numbers and times for people. Pure functions: the caller passes the time zone and the present. */

export type Zone = "browser" | "UTC";

const cache = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>();

function cached<T extends Intl.NumberFormat | Intl.DateTimeFormat>(key: string, make: () => T): T {
  let found = cache.get(key);
  if (found === undefined) {
    found = make();
    cache.set(key, found);
  }
  return found as T;
}

/** 1204 → "1,204" */
export function count(value: number): string {
  return cached("count", () => new Intl.NumberFormat("en")).format(value);
}

/** 18220 → "18k", for tabs and badges; exact below 10,000. */
export function shortCount(value: number): string {
  if (value < 10_000) return count(value);
  const compact = () => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: value < 1e6 ? 0 : 1 });
  return cached(value < 1e6 ? "k" : "m", compact).format(value).replace("K", "k");
}

/** For a badge: at most four letters. */
export function tinyCount(value: number): string {
  if (value < 1000) return String(value);
  return value < 1e6 ? `${Math.floor(value / 1000)}k` : `${Math.floor(value / 1e6)}m`;
}

/** Tasks per second: two digits below ten. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "<0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

/** 0.0412 → "4.1 %" */
export function percent(share: number): string {
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.1) return "<0.1 %";
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** A duration of a run: 3 ms, 1.2 s, 4 min 10 s, 2 h 5 min, 3 d 4 h. */
export function duration(ms: number): string {
  if (ms < 0) return `−${duration(-ms)}`;
  if (ms < 1) return ms === 0 ? "0 ms" : "<1 ms";
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return join(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return join(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return join(Math.floor(hours / 24), "d", hours % 24, "h");
}

function join(large: number, unit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smallUnit}`;
}

/** An age in one unit, so that a column of them is quiet: 3 s, 4 min, 2 h, 5 d. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

function timeZone(zone: Zone): string | undefined {
  return zone === "UTC" ? "UTC" : undefined;
}

/** "03:04:11", with the day in front if it is another one than that of `now`. */
export function clock(at: number, now: number, zone: Zone): string {
  const time = cached(`clock ${zone}`, () =>
    new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: timeZone(zone) })).format(at);
  const day = dayOf(at, zone);
  return day === dayOf(now, zone) ? time : `${day} ${time}`;
}

/** "03:04:11.024": times within one run. */
export function preciseClock(at: number, zone: Zone): string {
  return cached(`precise ${zone}`, () =>
    new Intl.DateTimeFormat("en-GB", {
      hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, timeZone: timeZone(zone),
    })).format(at);
}

function dayOf(at: number, zone: Zone): string {
  return cached(`day ${zone}`, () =>
    new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: timeZone(zone) })).format(at);
}

/** A time below a chart, in ms: with seconds if it spans minutes, as a day at midnight if it spans days. */
export function axisTime(at: number, span: number, zone: Zone): string {
  const time = cached(`clock ${zone}`, () =>
    new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: timeZone(zone) })).format(at);
  if (span < 600_000) return time;
  return span > 129_600_000 && time === "00:00:00" ? dayOf(at, zone) : time.slice(0, 5);
}

/** "03": the hour of a chart. */
export function hour(at: number, zone: Zone): string {
  return cached(`hour ${zone}`, () => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", timeZone: timeZone(zone) })).format(at);
}

/** "2026-03-29T03:00:00+02:00" → "Sun, 29 Mar, 03:00:00 +02:00": in the zone that it is written in. */
export function wallTime(text: string): string {
  const wall = Date.parse(`${text.slice(0, 19)}Z`);
  const format = () => new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });
  return `${cached("wall", format).format(wall)} ${/[+-][0-9:]+$|Z$/.exec(text.slice(19))?.[0] ?? ""}`;
}

/** "2026-11-18 03:04:11 UTC": the text on hover. */
export function utc(at: number): string {
  return `${new Date(at).toISOString().replace("T", " ").slice(0, 19)} UTC`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let rest = value;
  let unit = "";
  for (const next of units) {
    if (rest < 999.5) break;
    rest /= 1000;
    unit = next;
  }
  return `${rest < 9.95 ? rest.toFixed(1) : Math.round(rest)} ${unit}`;
}

/** The last characters of a uuid, as the command line shows them: the first ones are its time. */
export function shortId(uuid: string): string {
  return uuid.slice(-10);
}

/** Milliseconds of an ISO time; NaN never leaves this function. */
export function parseTime(text: string | null | undefined): number | null {
  if (!text) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}
