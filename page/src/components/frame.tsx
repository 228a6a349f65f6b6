/** Head, the state of the connection, banners and notices around every page. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { age, clock } from "../format.ts";
import { isTyping, onKey } from "../keys.ts";
import { t } from "../messages.ts";
import { pathOf } from "../router.ts";
import { api, attempt, canOperate, identity, isHeld, live, loadStatus, notices, notify, now, router, status, statusTrouble, storeTrouble, theme, zone } from "../session.ts";
import { BulkProgress } from "./bulk-progress.tsx";
import { ExplainOnKey } from "./explain-dialog.tsx";
import { Help } from "./help.tsx";
import { Icon } from "./icon.tsx";
import { PageLink } from "./link.tsx";
import { Navigation } from "./navigation.tsx";
import { SignInForm } from "./sign-in.tsx";
import { Ago } from "./time.tsx";

const PAUSES_SHOWN = 2;

export function Frame({ children }: { children: ComponentChildren }) {
  const [hasHelp, showHelp] = useState(false);
  useEffect(() => onKey("?", () => showHelp(true)), []);
  useEffect(() => onKey("p", () => {
    isHeld.value = !isHeld.value;
  }), []);
  const { environment } = identity.value;
  const isSignedOut = live.connection.value.state === "signed_out";
  return (
    <>
      <a class="skip" href="#main">{t.skip}</a>
      <header class={environment ? `top env-${envColor(environment)}` : "top"} inert={isSignedOut}>
        <div class="bar">
          <PageLink to="" class="brand"><Mark />{t.name}</PageLink>
          <AppName />
          {environment && <span class="env">{environment}</span>}
          <Facts />
          <Search />
          <Tools onHelp={() => showHelp(true)} />
        </div>
        <Navigation />
      </header>
      <Banner />
      <Paused />
      <BulkProgress />
      <main id="main" inert={isSignedOut} tabIndex={-1} class={storeTrouble.value ? "stale" : ""}>{children}</main>
      <div class="notices" aria-live="polite">
        {notices.value.map((notice) => (
          <p key={notice.id} class={`notice ${notice.kind}`}>
            <Icon name={notice.kind === "done" ? "succeeded" : "failed"} />{notice.text}
          </p>
        ))}
      </div>
      <ExplainOnKey />
      {hasHelp && <Help onClose={() => showHelp(false)} />}
    </>
  );
}

/** Where a server shows several apps, one of them is chosen here: the page is loaded again. */
function AppName() {
  const { app } = identity.value;
  const apps = status.value?.apps ?? [];
  if (apps.length < 2) return <span class="app">{app}</span>;
  return (
    <select class="app" aria-label={t.chooseApp} value={app} onChange={(event) => window.location.assign(router.address("", event.currentTarget.value))}>
      {apps.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}

function envColor(name: string): string {
  if (/prod|live/i.test(name)) return "production";
  if (/stag|test|qa/i.test(name)) return "staging";
  return `other env-${[...name].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 4}`;
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <circle cx="16" cy="16" r="12" class="mark-ring" />
      <circle cx="16" cy="16" r="5" class="mark-dot" />
    </svg>
  );
}

function connectionText(): { kind: string; text: string; since?: string } {
  const trouble = storeTrouble.value;
  if (trouble) return { kind: "down", text: t.connection.unavailable, since: t.connection.unavailableSince(clock(trouble.since, now.value, zone.value)) };
  if (isHeld.value) return { kind: "held", text: t.connection.held };
  const { value } = live.connection;
  switch (value.state) {
    case "live":
      return { kind: "live", text: t.connection.live };
    case "reconnecting":
      return { kind: "again", text: t.connection.reconnecting(age(now.value - value.since)) };
    case "polling":
      return { kind: "live", text: t.connection.polling(value.seconds) };
    case "signed_out":
      return { kind: "down", text: t.connection.signedOut };
    default:
      return { kind: "again", text: t.connection.connecting };
  }
}

function Facts() {
  const { kind, text, since } = connectionText();
  const found = status.value;
  return (
    <div class="facts">
      <span class={`connection ${kind}`} aria-live="polite"><i /><span>{text}{since && <span class="wide">{since}</span>}</span></span>
      {identity.value.role === "viewer" && <span class="fact">{t.connection.readOnly}</span>}
      {!found && statusTrouble.value !== null && storeTrouble.value === null && (
        <span class="fact none-alive" title={statusTrouble.value}>{t.noStatus}</span>
      )}
      {found && (
        <>
          <span class={found.workers === 0 ? "fact none-alive" : "fact"}>{t.workers(found.workers)}</span>
          <span class="fact wide">{t.slots(found.running, found.slots)}</span>
          {found.releases.length > 0 && <span class={found.releases.length > 1 ? "fact wide mixed" : "fact wider"}>{t.releases(found.workers_by_release)}</span>}
          <span class="fact wider" title={found.store.server ?? undefined}>{t.store(found.store.kind, found.store.round_trip_ms)}</span>
        </>
      )}
    </div>
  );
}

function Search() {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => onKey("/", () => {
    const own = document.querySelector<HTMLInputElement>("#filter");
    (own ?? input.current)?.focus();
  }), []);
  const submit = (event: Event) => {
    event.preventDefault();
    const text = input.current?.value.trim() ?? "";
    if (text === "") return;
    router.go(pathOf("tasks", "", { q: text }));
    if (input.current) input.current.value = "";
  };
  return (
    <form class="search" role="search" onSubmit={submit}>
      <Icon name="search" />
      <input ref={input} type="search" aria-label={t.search} placeholder={t.searchHint} spellcheck={false}
        onKeyDown={(event) => event.key === "Escape" && isTyping(event.target) && input.current?.blur()} />
      <kbd>/</kbd>
    </form>
  );
}

function Tools({ onHelp }: { onHelp: () => void }) {
  const next = { system: "light", light: "dark", dark: "system" } as const;
  const icon = { system: "system", light: "sun", dark: "moon" } as const;
  const { user } = identity.value;
  const hold = isHeld.value ? t.resumeUpdates : t.holdUpdates;
  return (
    <div class="tools">
      <button class="square" title={hold} aria-label={hold} aria-pressed={isHeld.value} onClick={() => (isHeld.value = !isHeld.value)}>
        <Icon name={isHeld.value ? "play" : "paused"} />
      </button>
      <button class="zone wide" title={t.zoneHint} onClick={() => (zone.value = zone.value === "UTC" ? "browser" : "UTC")}>
        {zone.value === "UTC" ? t.utc : Intl.DateTimeFormat().resolvedOptions().timeZone}
      </button>
      <button class="square" title={t.themes[theme.value]} aria-label={t.themes[theme.value]} onClick={() => (theme.value = next[theme.value])}>
        <Icon name={icon[theme.value]} />
      </button>
      <button class="square wide" title={t.help.title} aria-label={t.help.title} onClick={onHelp}><Icon name="keyboard" /></button>
      {user && <span class="user wider">{user}</span>}
      {user && (
        <button class="square" title={t.signOut(user)} aria-label={t.signOut(user)} onClick={() => void signOut()}>
          <Icon name="signout" />
        </button>
      )}
    </div>
  );
}

async function signOut(): Promise<void> {
  await api.send("DELETE", "/session");
  live.close();
  window.location.replace(router.base); // to the sign-in: nothing of the data stays on the screen
}

/** Pauses concern every page: tasks that wait for them are in each list. */
function Paused() {
  const resume = (source: string, key: string | null) => attempt(async () => {
    await api.send("POST", `/sources/${encodeURIComponent(source)}/resume`, { key });
    notify("done", t.resumedNow(key ?? source));
    await loadStatus();
  });
  const all = status.value?.paused ?? [];
  return (
    <>
      {all.slice(0, PAUSES_SHOWN).map(({ source, key, reason, since }) => (
        <div key={`${source}/${key}`} class="banner paused-line">
          <Icon name="paused" />
          <span><strong><PageLink to={pathOf("sources", source)}>{t.pausedFor(source, key)}</PageLink></strong> {reason} {since && <Ago at={since} />}</span>
          <span class="grow" />
          {canOperate.value && <button onClick={() => void resume(source, key)}>{t.resume}</button>}
        </div>
      ))}
    </>
  );
}

/** What is wrong with the whole page; nothing on a good day. */
function Banner() {
  const trouble = storeTrouble.value;
  if (live.connection.value.state === "signed_out") {
    return (
      <div class="sign-in-again" role="dialog" aria-label={t.signIn.title}>
        <SignInForm onDone={() => {
          live.restart();
          void loadStatus();
        }} />
      </div>
    );
  }
  if (!trouble) return null;
  return (
    <div class="banner" role="alert">
      <Icon name="warning" />
      <span><strong>{t.storeDown(clock(trouble.since, now.value, zone.value))}</strong> {trouble.text || t.unreachable}</span>
    </div>
  );
}
