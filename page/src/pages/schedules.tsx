import { useState } from "preact/hooks";
import { type Plan, type Rows, type ScheduleRow, STATES } from "../api.ts";
import { ReasonDialog } from "../components/dialog.tsx";
import { Empty, Loaded } from "../components/empty.tsx";
import { Icon, type IconName } from "../components/icon.tsx";
import { PageLink } from "../components/link.tsx";
import { Planned, ScheduleForm } from "../components/schedule-form.tsx";
import { Badge } from "../components/state.tsx";
import { Ago, Clock } from "../components/time.tsx";
import { age, clock, count, duration, hour, parseTime } from "../format.ts";
import { useListKeys } from "../list-keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, attempt, canOperate, notify, now, router, zone } from "../session.ts";
import { useView } from "../view.ts";

const MANY_AT_ONCE = 5;
const OVERDUE = 2000; // ms
const DOT_ICONS: Record<string, IconName> = { none: "ready", ...Object.fromEntries(STATES.map((state) => [state, state])) };
const ON_CHANGES = { watch: "watch=overview", on: ["invalidate"], invalidatedBy: ["schedules", "workers"] } as const;

export function SchedulesPage() {
  const { data, error, reload } = useView<Rows<ScheduleRow>>("/schedules", {}, { ...ON_CHANGES, pause: 1000, every: 5000 });
  const [isNew, setNew] = useState(false);
  useListKeys();
  const sources = [...new Set((data.value?.items ?? []).map(({ source }) => source))];
  return (
    <div class="stack">
      <header class="page-head">
        <h1>{t.pages.schedules}</h1>
        <span class="hint">{data.value && count(data.value.items.length)}</span>
        <span class="grow" />
        {canOperate.value && <button onClick={() => setNew(true)}>{t.newSchedule}</button>}
      </header>
      <Loaded data={data.value} error={error.value}>
        {({ items }) => (items.length === 0
          ? <Empty icon="schedules" title={t.empty.schedules} text={t.empty.schedulesText} code={t.empty.schedulesCode} />
          : (
            <>
              <Day />
              <section class="card"><Table rows={items} onDone={() => reload(true)} /></section>
            </>
          ))}
      </Loaded>
      {isNew && <ScheduleForm sources={sources} onClose={() => setNew(false)} onDone={() => reload(true)} />}
    </div>
  );
}

/** The runs of the next 24 hours, by hour. */
const BAR_SHARE = 74; // per cent of the height; the hour below takes the rest

function Day() {
  const { data } = useView<Plan>("/schedule-plan", { hours: 24, limit: 1 }, { ...ON_CHANGES, pause: 5000, every: 60_000 });
  const load = data.value?.load ?? [];
  const top = Math.max(1, ...load.map(({ runs }) => runs));
  const busiest = data.value?.busiest;
  const at = busiest ? parseTime(busiest.at) : null;
  return (
    <section class="card day">
      <div class="card-head">
        <h2>{t.nextDay}</h2>
        {busiest && at !== null && busiest.runs >= MANY_AT_ONCE && <Badge kind="warning">{t.busiest(busiest.runs, clock(at, now.value, zone.value))}</Badge>}
      </div>
      <ol>
        {load.map((each) => (
          <li key={each.at} title={t.runsInHour(each.runs, hour(Date.parse(each.at), zone.value))}>
            <i style={{ height: `${each.runs === 0 ? 0 : Math.max(5, (BAR_SHARE * each.runs) / top)}%` }} />
            <span>{hour(Date.parse(each.at), zone.value)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Table({ rows, onDone }: { rows: readonly ScheduleRow[]; onDone: () => void }) {
  const [open, setOpen] = useState(router.location.value.query.get("open") ?? "");
  return (
    <table class="rows cards">
      <thead>
        <tr>
          <th class="state-column">{t.columns.state}</th><th>{t.columns.name}</th><th>{t.columns.rule}</th><th>{t.columns.lastRuns}</th>
          <th class="time">{t.columns.next}</th><th class="number">{t.columns.lateness}</th><th>{t.columns.owner}</th>
          <th><span class="hidden-text">{t.columns.actions}</span></th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => [
          <tr key={row.name}>
            <td class="state-column"><ScheduleState row={row} /></td>
            <td class="main">
              <button class="link" data-open aria-expanded={open === row.name} onClick={() => setOpen(open === row.name ? "" : row.name)}>
                <Icon name={open === row.name ? "down" : "right"} />{row.name}
              </button>
            </td>
            <td data-name={t.columns.rule} title={row.rule}>{row.words}</td>
            <td><Dots row={row} /></td>
            <td class="time" data-name={t.columns.next}><Next row={row} /></td>
            <td class="number" data-name={t.columns.lateness}>{row.lateness_ms === null ? <span class="none">{t.none}</span> : duration(row.lateness_ms)}</td>
            <td data-name={t.columns.owner}><Badge kind="quiet">{t.owners[row.owner]}</Badge></td>
            <td class="actions">{canOperate.value && <Actions row={row} onDone={onDone} />}</td>
          </tr>,
          open === row.name && <tr key={`${row.name} `} class="detail"><td colSpan={8}><Detail row={row} /></td></tr>,
        ])}
      </tbody>
    </table>
  );
}

function Next({ row }: { row: ScheduleRow }) {
  if (row.status === "active") {
    const passed = now.value - (parseTime(row.next_run) ?? now.value);
    return passed > OVERDUE ? <span class="late">{t.overdue(age(passed))}</span> : <Ago at={row.next_run} />;
  }
  return <span class="none">{row.status === "paused" ? row.reason || t.scheduleStates.paused : t.doesNotFire}</span>;
}

/** The last runs as one picture; the runs themselves are in the open row. */
function Dots({ row }: { row: ScheduleRow }) {
  if (row.runs.length === 0) return <span class="none">{t.noRuns}</span>;
  const failed = row.runs.filter(({ state }) => state === "failed").length;
  const missing = row.runs.filter(({ state }) => state === "none").length;
  const text = t.runsSummary(row.runs.length, failed, missing);
  return <span class="dots" role="img" aria-label={text} title={text}>{row.runs.map((run) => <i key={run.at} class={`dot-${run.state}`} />)}</span>;
}

function Detail({ row }: { row: ScheduleRow }) {
  const [limit, setLimit] = useState(5);
  const canPlan = row.status !== "invalid" && row.status !== "orphan";
  return (
    <div class="columns">
      <div>
        <h3>{t.plan}</h3>
        {row.reason && <p class="hint">{row.reason}</p>}
        {canPlan && <Coming name={row.name} limit={limit} />}
        {canPlan && limit === 5 && <button class="quiet" onClick={() => setLimit(35)}>{t.morePlan}</button>}
        <p class="hint">{t.runCount(row.run_count)} · <PageLink to={pathOf("sources", row.source)}>{row.source}</PageLink> · <code>{JSON.stringify(row.args)}</code></p>
      </div>
      <div>
        <h3>{t.columns.lastRuns}</h3>
        <ul class="runs">
          {[...row.runs].reverse().map((run) => (
            <li key={run.at}>
              <span class={`state state-${run.state}`}><Icon name={DOT_ICONS[run.state] ?? "ready"} />{run.state === "none" ? t.didNotRun : t.states[run.state]}</span>
              {run.state === "none" ? <Clock at={run.at} /> : <PageLink to={pathOf("tasks", run.uuid)}><Clock at={run.at} /></PageLink>}
              <span class="hint">{run.lateness_ms === null ? "" : t.late(duration(run.lateness_ms))}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function Coming({ name, limit }: { name: string; limit: number }) {
  const { data, error } = useView<Plan>(`/schedules/${encodeURIComponent(name)}/plan`, { hours: 8784, limit }, ON_CHANGES);
  if (error.value) return <p class="trouble">{error.value.message}</p>;
  return <Planned rows={data.value?.items ?? []} />;
}

function Actions({ row, onDone }: { row: ScheduleRow; onDone: () => void }) {
  const [asks, ask] = useState<"" | "pause" | "edit" | "delete">("");
  const path = `/schedules/${encodeURIComponent(row.name)}`;
  const send = (action: "run" | "resume") => attempt(async () => {
    await api.send("POST", `${path}/${action}`);
    notify("done", t.schedulesDone[action](row.name));
    onDone();
  });
  const close = () => ask("");
  const changed = async (what: "pause" | "delete", request: Promise<unknown>) => {
    await request;
    notify("done", t.schedulesDone[what](row.name));
    onDone();
  };
  const isBroken = row.status === "orphan" || row.status === "invalid";
  return (
    <>
      {!isBroken && <button onClick={() => void send("run")}>{t.runNow}</button>}
      {row.status === "active" && <button onClick={() => ask("pause")}>{t.pause}</button>}
      {!row.enabled && <button class="primary" onClick={() => void send("resume")}>{t.resume}</button>}
      {row.owner === "data" && row.form && <button onClick={() => ask("edit")}>{t.edit}</button>}
      {(row.status === "orphan" || row.owner === "data") && (
        <button class="square quiet" title={t.deleteSchedule} aria-label={t.deleteTitle(row.name)} onClick={() => ask("delete")}><Icon name="close" /></button>
      )}
      {asks === "pause" && (
        <ReasonDialog title={t.pauseTitle(row.name)} action={t.pauseAction} effect={t.pauseScheduleEffect} onClose={close}
          onConfirm={(reason) => changed("pause", api.send("POST", `${path}/pause`, { reason }))} />
      )}
      {asks === "delete" && (
        <ReasonDialog title={t.deleteTitle(row.name)} action={t.deleteSchedule} effect={t.deleteEffect} reason="none" danger onClose={close}
          onConfirm={() => changed("delete", api.send("DELETE", path, {}, { "If-Match": row.revision }))} />
      )}
      {asks === "edit" && <ScheduleForm row={row} sources={[]} onClose={close} onDone={onDone} />}
    </>
  );
}

const LOOKS = { active: "succeeded", paused: "paused", orphan: "failed", invalid: "failed", over: "cancelled" } as const;

function ScheduleState({ row }: { row: ScheduleRow }) {
  const look = LOOKS[row.status];
  return <span class={`state state-${look}`}><Icon name={look} /><span>{t.scheduleStates[row.status]}</span></span>;
}
