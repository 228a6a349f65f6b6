import { render } from "preact";
import { useEffect } from "preact/hooks";
import { Empty } from "./components/empty.tsx";
import { Frame } from "./components/frame.tsx";
import { listenToKeys } from "./keys.ts";
import { t } from "./messages.ts";
import { AgentsPage } from "./pages/agents.tsx";
import { AuditPage } from "./pages/audit.tsx";
import { BatchPage } from "./pages/batch.tsx";
import { BatchesPage } from "./pages/batches.tsx";
import { FailedPage } from "./pages/failed.tsx";
import { FlowPage } from "./pages/flow.tsx";
import { FlowsPage } from "./pages/flows.tsx";
import { LoginPage } from "./pages/login.tsx";
import { OutboxPage } from "./pages/outbox.tsx";
import { OverviewPage } from "./pages/overview.tsx";
import { SchedulesPage } from "./pages/schedules.tsx";
import { SourcePage } from "./pages/source.tsx";
import { SourcesPage } from "./pages/sources.tsx";
import { TaskPage } from "./pages/task.tsx";
import { TasksPage } from "./pages/tasks.tsx";
import { WaitingPage } from "./pages/waiting.tsx";
import { WorkersPage } from "./pages/workers.tsx";
import type { PageName } from "./router.ts";
import { identity, live, router, start } from "./session.ts";
import { ANY } from "./view.ts";
import "./styles.css";
import "./tables.css";
import "./flows.css";

const PAGES: Partial<Record<PageName, () => preact.JSX.Element>> = {
  overview: OverviewPage,
  tasks: TasksPage,
  task: TaskPage,
  failed: FailedPage,
  sources: SourcesPage,
  source: SourcePage,
  schedules: SchedulesPage,
  workers: WorkersPage,
  flows: FlowsPage,
  flow: FlowPage,
  batches: BatchesPage,
  batch: BatchPage,
  waiting: WaitingPage,
  outbox: OutboxPage,
  agents: AgentsPage,
  audit: AuditPage,
};

function NoPage() {
  useEffect(() => live.follow(ANY), []);
  return <Empty icon="search" title={t.notFound} text={t.notFoundText} />;
}

function App() {
  const { page, id } = router.location.value;
  useEffect(() => {
    const name = id || t.pages[page as keyof typeof t.pages] || t.name;
    document.title = [name, identity.value.app, t.name].filter(Boolean).join(" · ");
  }, [page, id, identity.value.app]);
  if (page === "login") return <LoginPage />;
  const Page = PAGES[page];
  return <Frame>{Page ? <Page /> : <NoPage />}</Frame>;
}

start();
listenToKeys();
render(<App />, document.getElementById("app") ?? document.body);
