/** A chart over time, drawn by uPlot, with the same data as a table. */
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { axisTime, clock, count } from "../format.ts";
import { t } from "../messages.ts";
import { type Mark, marksWithin, type ShownMark } from "../ranges.ts";
import { now, theme, zone } from "../session.ts";

export interface Line { name: string; color: string; values: readonly (number | null)[] }
/** at, and that of the marks: seconds. */
interface ChartProps { title: string; at: readonly number[]; lines: readonly Line[]; marks?: readonly Mark[] }

const HEIGHT = 180;
const AXIS_FONT = "12px system-ui, sans-serif";

const INCREMENTS = [1, 2, 5].flatMap((first) => Array.from({ length: 7 }, (_, power) => first * 10 ** power)).sort((a, b) => a - b);

type Library = typeof uPlot;
let library: Promise<Library> | undefined;

/** Only a view with a chart needs it, and it is a quarter of the script. */
function loadLibrary(): Promise<Library> {
  library ??= import("uplot").then((module) => module.default);
  return library;
}

/** The room inside the padding. */
function widthOf(element: HTMLElement): number {
  const style = getComputedStyle(element);
  return element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
}

function cssColor(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

function drawMarks({ ctx, bbox, valToPos }: uPlot, marks: readonly ShownMark[]) {
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = cssColor("--ink-2");
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.setLineDash([4, 4]);
  for (const { place, name } of marks) {
    const x = valToPos(place, "x", true);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const gap = 4 * devicePixelRatio;
    const room = bbox.left + bbox.width - x - gap;
    const { width } = ctx.measureText(name);
    ctx.fillText(name, width > room ? x - gap - width : x + gap, bbox.top + 12 * devicePixelRatio);
  }
  ctx.restore();
}

/** The points that no line reaches, such as the first minute of a new source: without a dot they would not show. */
function lonePoints(plot: uPlot, series: number): number[] {
  const values = plot.data[series] ?? [];
  const isEmpty = (i: number) => values[i] === null || values[i] === undefined;
  return [...values.keys()].filter((i) => !isEmpty(i) && isEmpty(i - 1) && isEmpty(i + 1));
}

/** Below the axis: as the span of the chart needs it. */
function axisTimes({ data: [at] }: uPlot, times: readonly number[]): string[] {
  const span = ((at?.at(-1) ?? 0) - (at?.[0] ?? 0)) * 1000;
  return times.map((time) => axisTime(time * 1000, span, zone.value));
}

function options(Plot: Library, lines: readonly Line[], width: number, marks: () => readonly ShownMark[]): uPlot.Options {
  const ink = cssColor("--ink-2");
  const grid = { stroke: cssColor("--line"), width: 1 };
  const ticks = { show: false };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    tzDate: (seconds) => (zone.value === "UTC" ? Plot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
    hooks: { draw: [(plot) => drawMarks(plot, marks())] },
    cursor: { y: false, points: { show: false } },
    padding: [8, 30, 0, 0],
    scales: { x: { time: true }, y: { range: (_, __, top) => [0, Math.max(1, top * 1.1)] } },
    axes: [
      { stroke: ink, font: AXIS_FONT, grid: { show: false }, ticks, size: 28, space: 90, values: axisTimes },
      { stroke: ink, font: AXIS_FONT, grid, ticks, size: 56, space: 36, incrs: INCREMENTS, values: (_, marks) => marks.map((mark) => count(mark)) },
    ],
    series: [
      {},
      ...lines.map((line) => {
        const stroke = cssColor(line.color);
        return { label: line.name, stroke, width: 2, fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.12)"), points: { show: false, filter: lonePoints, size: 5, fill: stroke } };
      }),
    ],
  };
}

export function Chart({ title, at, lines, marks = [] }: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [isTable, showTable] = useState(false);
  const [loaded, setLoaded] = useState<{ Plot: Library } | null>(null);
  const shown = marksWithin(marks, at);
  const drawn = useRef(shown);
  drawn.current = shown;
  const isEmpty = at.length > 0 && lines.every(({ values }) => values.every((value) => value == null));
  const names = lines.map(({ name }) => name).join();
  useEffect(() => {
    loadLibrary().then((Plot) => setLoaded({ Plot }), () => {
      library = undefined; // the next view tries again
      showTable(true);
    });
  }, []);
  useEffect(() => {
    const element = place.current;
    if (!element || !loaded) return undefined;
    const make = () => {
      plot.current?.destroy();
      plot.current = new loaded.Plot(options(loaded.Plot, lines, widthOf(element), () => drawn.current), data(at, lines), element);
    };
    make();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: widthOf(element), height: HEIGHT }));
    resized.observe(element);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    const stop = theme.subscribe(() => make());
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      stop();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [isTable, names, loaded, zone.value]);
  useEffect(() => plot.current?.setData(data(at, lines)), [at, lines]);
  return (
    <section class="card">
      <div class="card-head">
        <h2>{title}</h2>
        <span class="legend">
          {lines.map((line) => <span key={line.name} class={`key ${line.color.slice(2)}`}>{line.name}</span>)}
          {shown.map((mark) => <span key={mark.name}>{t.releaseAt(mark.name, shortTime(mark.at))}</span>)}
        </span>
        <button class="quiet" aria-pressed={isTable} onClick={() => showTable(!isTable)}>{isTable ? t.asChart : t.asTable}</button>
      </div>
      {isTable ? <ChartTable at={at} lines={lines} /> : <div class="chart" ref={place} role="img" aria-label={title} />}
      {isEmpty && !isTable && <p class="hint no-figures">{t.noFigures}</p>}
    </section>
  );
}

function shortTime(seconds: number): string {
  return clock(seconds * 1000, now.value, zone.value);
}

function data(at: readonly number[], lines: readonly Line[]): uPlot.AlignedData {
  return [at as number[], ...lines.map(({ values }) => values as (number | null)[])];
}

function ChartTable({ at, lines }: Omit<ChartProps, "title">) {
  return (
    <div class="scroll-box" tabIndex={0}>
      <table class="rows">
        <thead><tr><th>{t.columns.time}</th>{lines.map((line) => <th key={line.name} class="number">{line.name}</th>)}</tr></thead>
        <tbody>
          {at.map((moment, i) => (
            <tr key={moment}>
              <td>{shortTime(moment)}</td>
              {lines.map((line) => <td key={line.name} class="number">{line.values[i] == null ? t.none : count(Math.round(line.values[i] ?? 0))}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
