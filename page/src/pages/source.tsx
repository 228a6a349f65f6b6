/** One source: figures, limits, pauses, charts, and what belongs to it. */
import { useState } from "preact/hooks";
import type { SourceDetail, SourceLimitRow } from "../api.ts";
import { Dialog, Field, ReasonDialog } from "../components/dialog.tsx";
import { Loaded } from "../components/empty.tsx";
import { LimitDialog, type LimitValues } from "../components/limit-dialog.tsx";
import { PageLink } from "../components/link.tsx";
import { PauseButton } from "../components/pause-button.tsx";
import { jsonObject } from "../components/schedule-form.tsx";
import { running, SourceMarks } from "../components/source-table.tsx";
import { Ago } from "../components/time.tsx";
import { TimeCharts } from "../components/time-charts.tsx";
import { count, duration, rate } from "../format.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, attempt, canOperate, notify, now, router } from "../session.ts";
import { useView } from "../view.ts";

const BATCHES = ":batch";

export function SourcePage() {
  const { id } = router.location.value;
  const { data, error, reload } = useView<SourceDetail>(`/sources/${encodeURIComponent(id)}`, {}, {
    watch: "watch=overview", on: ["counts", "rates", "transitions", "invalidate"], invalidatedBy: ["sources", "limits", "schedules"], pause: 1000, every: 5000,
  });
  const onDone = () => reload(true);
  return (
    <Loaded data={data.value} error={error.value}>
      {(source) => (
        <div class="stack">
          <header class="page-head">
            <h1>{source.name}</h1>
            <SourceMarks row={source} />
            <span class="grow" />
            {canOperate.value && <Actions source={source} onDone={onDone} />}
          </header>
          <Figures source={source} />
          <div class="columns">
            <Limits source={source} onDone={onDone} />
            <Pauses source={source} onDone={onDone} />
          </div>
          <TimeCharts source={source.name} history={source.history} now={now.value} />
          <div class="columns">
            <Failures source={source} />
            <Neighbours source={source} />
          </div>
        </div>
      )}
    </Loaded>
  );
}

interface PartProps { source: SourceDetail; onDone: () => void }

function Actions({ source, onDone }: PartProps) {
  const [asks, ask] = useState<"" | "freeze" | "degrade" | "add">("");
  const path = `/sources/${encodeURIComponent(source.name)}`;
  const send = async (verb: "freeze" | "degrade" | "thaw" | "restore", reason = "") => {
    await api.send("POST", `${path}/${verb}`, { reason });
    notify("done", t.modeDone[verb](source.name));
    onDone();
  };
  const mode = (verb: "freeze" | "degrade") => (
    <ReasonDialog title={t.modeTitle[verb](source.name)} action={t.modeAction[verb]} effect={t.modeEffect[verb]} reason="required" onClose={() => ask("")}
      onConfirm={(reason) => send(verb, reason)} />
  );
  return (
    <>
      <button onClick={() => ask("add")}>{t.addTask}</button>
      <PauseButton source={source} onDone={onDone} />
      {source.mode === "frozen"
        ? <button class="primary" onClick={() => void attempt(() => send("thaw"))}>{t.modeAction.thaw}</button>
        : <button onClick={() => ask("freeze")}>{t.freeze}</button>}
      {source.name.endsWith(BATCHES) && (source.mode === "degraded"
        ? <button class="primary" onClick={() => void attempt(() => send("restore"))}>{t.modeAction.restore}</button>
        : <button onClick={() => ask("degrade")}>{t.degrade}</button>)}
      {(asks === "freeze" || asks === "degrade") && mode(asks)}
      {asks === "add" && <AddDialog source={source.name} onClose={() => ask("")} onDone={onDone} />}
    </>
  );
}

function AddDialog({ source, onClose, onDone }: { source: string; onClose: () => void; onDone: () => void }) {
  const [fields, setFields] = useState({ args: "{}", label: "", after: "" });
  const confirm = async () => {
    const body: Record<string, unknown> = { source, args: jsonObject(fields.args), label: fields.label };
    if (fields.after !== "") body.after = Number(fields.after);
    const { uuid } = await api.send<{ uuid: string }>("POST", "/tasks", body);
    notify("done", t.addedTask(source));
    onDone();
    router.go(pathOf("tasks", uuid));
  };
  const set = (name: keyof typeof fields) => (event: { currentTarget: { value: string } }) => setFields({ ...fields, [name]: event.currentTarget.value });
  return (
    <Dialog title={t.addTitle(source)} action={t.addAction} onClose={onClose} onConfirm={confirm}>
      <Field label={t.argumentsJson}><textarea rows={4} spellcheck={false} value={fields.args} onInput={set("args")} /></Field>
      <Field label={t.label}><input value={fields.label} maxLength={200} onInput={set("label")} /></Field>
      <Field label={t.afterSeconds}><input type="number" min={0} step="any" value={fields.after} onInput={set("after")} /></Field>
    </Dialog>
  );
}

function Figures({ source }: { source: SourceDetail }) {
  const link = (state: string) => pathOf("tasks", "", { q: `source:${source.name} state:${state}` });
  const seconds = (value: number | null | undefined) => (value == null ? t.none : duration(value));
  const numbers: [string, string, string?][] = [
    [t.states.ready, count(source.ready), link("ready")],
    [t.parked, count(source.parked)],
    [t.states.running, running(source), link("running")],
    [t.states.scheduled, count(source.scheduled), link("scheduled")],
    [t.states.waiting, count(source.waiting), link("waiting")],
    [t.states.failed, count(source.failed), link("failed")],
    [t.tiles.oldest, source.oldest_ready === null ? t.none : duration(source.oldest_ready * 1000)],
    [t.columns.latency, seconds(source.hour?.latency_p95_ms)],
    [t.columns.p95, seconds(source.p95_ms)],
    [t.columns.done, source.rates ? rate(source.rates.done) : t.none],
  ];
  return (
    <dl class="tiles ten">
      {numbers.map(([name, value, to]) => (
        <div class="tile" key={name}><dt>{to ? <PageLink to={to}>{name}</PageLink> : name}</dt><dd>{value}</dd></div>
      ))}
    </dl>
  );
}

function Limits({ source, onDone }: PartProps) {
  const [changed, change] = useState<LimitValues | null>(null);
  const reset = (limit: SourceLimitRow) => attempt(async () => {
    await api.send("PUT", `/limits/${encodeURI(limit.name)}`, limit.cap === null ? { rate: null } : { cap: null });
    notify("done", t.limitReset(limit.name));
    onDone();
  });
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.limits}</h2>
        {canOperate.value && source.limits.length === 0 && <button onClick={() => change({ name: source.name, cap: null, rate: null })}>{t.setLimit}</button>}
      </div>
      {source.limits.length === 0 ? <p class="hint pad">{t.noLimits}</p> : (
        <ul class="plain">
          {source.limits.map((limit) => (
            <li key={`${limit.name} ${limit.cap === null}`} class="line">
              <span><strong>{limitText(limit)}</strong> {limit.name !== source.name && <code>{limit.name}</code>} <LimitOwner limit={limit} /></span>
              <span class="grow" />
              {canOperate.value && <button onClick={() => change(limit)}>{t.changeLimit}</button>}
              {canOperate.value && limit.by === "operator" && <button onClick={() => void reset(limit)}>{t.resetLimit}</button>}
            </li>
          ))}
        </ul>
      )}
      {changed && <LimitDialog limit={changed} onClose={() => change(null)} onDone={onDone} />}
    </section>
  );
}

/** The code, or the operator who changed it last, and when. */
function LimitOwner({ limit }: { limit: SourceLimitRow }) {
  if (!limit.user) return <span class="hint">{t.limitBy(limit.by)}</span>;
  return <span class="hint" title={t.limitChange}>{t.limitByUser(limit.by, limit.user)} · <Ago at={limit.at} /></span>;
}

function limitText(limit: SourceLimitRow): string {
  return limit.cap === null ? t.rateLimit(rate(limit.rate ?? 0)) : t.atOnce(count(limit.cap));
}

function Pauses({ source, onDone }: PartProps) {
  const [isAsking, ask] = useState(false);
  const hasKeys = source.limits.some(({ name }) => name.includes("/"));
  const all = [...(source.paused ? [source.paused] : []), ...source.paused_keys];
  const resume = (key: string | null) => attempt(async () => {
    await api.send("POST", `/sources/${encodeURIComponent(source.name)}/resume`, { key });
    notify("done", t.resumedNow(key ?? source.name));
    onDone();
  });
  return (
    <section class="card">
      <div class="card-head">
        <h2>{t.pauses}</h2>
        {canOperate.value && hasKeys && <button onClick={() => ask(true)}>{t.pauseKey}</button>}
      </div>
      {all.length === 0 ? <p class="hint pad">{t.noPauses}</p> : (
        <ul class="plain">
          {all.map((pause) => (
            <li key={pause.key ?? ""} class="line">
              <span><strong>{pause.key ?? t.wholeSource}</strong> {pause.reason} <span class="hint">{pause.since && <Ago at={pause.since} />}</span></span>
              <span class="grow" />
              {canOperate.value && <button onClick={() => void resume(pause.key)}>{t.resume}</button>}
            </li>
          ))}
        </ul>
      )}
      {isAsking && <PauseKeyDialog source={source} onClose={() => ask(false)} onDone={onDone} />}
    </section>
  );
}

function PauseKeyDialog({ source, onClose, onDone }: PartProps & { onClose: () => void }) {
  const [key, setKey] = useState("");
  const [reason, setReason] = useState("");
  const confirm = async () => {
    await api.send("POST", `/sources/${encodeURIComponent(source.name)}/pause`, { key: key.trim(), reason: reason.trim() });
    notify("done", t.pausedFor(source.name, key.trim()));
    onDone();
  };
  return (
    <Dialog title={t.pauseKeyTitle(source.name)} action={t.pauseAction} disabled={key.trim() === "" || reason.trim() === ""} onClose={onClose} onConfirm={confirm}>
      <p>{t.pauseKeyEffect}</p>
      <Field label={t.pauseKeyLabel} hint={t.pauseKeyHint}>
        <input value={key} maxLength={200} required spellcheck={false} onInput={(event) => setKey(event.currentTarget.value)} />
      </Field>
      <Field label={t.reason} hint={t.reasonHint}><input value={reason} maxLength={200} required onInput={(event) => setReason(event.currentTarget.value)} /></Field>
    </Dialog>
  );
}

function Failures({ source }: { source: SourceDetail }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.newestFailures}</h2><PageLink class="button" to={pathOf("tasks", "", { q: `source:${source.name} state:failed` })}>{t.itsFailures}</PageLink></div>
      {source.failures.length === 0 ? <p class="hint pad">{t.noFailures}</p> : (
        <ul class="plain">
          {source.failures.map((row) => (
            <li key={row.uuid}><PageLink to={pathOf("tasks", row.uuid)}>{row.label || row.short_id}</PageLink> <span class="error-text">{row.error && t.errorText(row.error.type, row.error.message)}</span> <span class="hint"><Ago at={row.ended_at} /></span></li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Neighbours({ source }: { source: SourceDetail }) {
  return (
    <section class="card">
      <div class="card-head"><h2>{t.knownBy(source.known_by.length)}</h2><PageLink class="button" to={pathOf("tasks", "", { q: `source:${source.name}` })}>{t.itsTasks}</PageLink></div>
      <ul class="plain">
        {source.known_by.slice(0, 10).map((worker) => <li key={worker.id}><code>{worker.short_id}</code> {worker.host}:{worker.pid} <span class="hint">{worker.release}</span></li>)}
        {source.schedules.map((schedule) => (
          <li key={schedule.name}><PageLink to={pathOf("schedules")}>{schedule.name}</PageLink> {schedule.words} <span class="hint">{schedule.enabled ? <Ago at={schedule.next_run} /> : t.scheduleStates.paused}</span></li>
        ))}
      </ul>
    </section>
  );
}
