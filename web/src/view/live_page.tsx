/* live_page.tsx - the way to a running model: ask what it is, or for a token, or wait for it. */
import { useEffect, useState } from "preact/hooks";
import { Client, Refused } from "../live/client";
import { LiveSource } from "../live/source";
import { Empty } from "./empty";

export function Connect({ onReady }: { onReady: (source: LiveSource) => void }) {
    const [client] = useState(() => new Client());
    const [problem, setProblem] = useState<Refused | null>(null);
    const [tries, setTries] = useState(0);
    useEffect(() => {
        let timer = 0;
        client.model().then(
            (model) => onReady(new LiveSource(client, model)),
            (error) => {
                setProblem(error instanceof Refused ? error : new Refused(500, String(error)));
                if (error instanceof Refused && error.status === 0)
                    timer = window.setTimeout(() => setTries(tries + 1), 1500);
            },
        );
        return () => clearTimeout(timer);
    }, [tries]);
    if (problem?.status === 404) return <Empty />;
    return (
        <main class="empty" aria-busy={!problem}>
            <h1>
                {!problem
                    ? "Loading the model…"
                    : problem.status === 401
                      ? "This server needs a token"
                      : problem.status === 0
                        ? "The server does not answer"
                        : "The server refused the request"}
            </h1>
            {problem?.status === 401 ? (
                <form
                    onSubmit={(event) => {
                        event.preventDefault();
                        setTries(tries + 1);
                    }}>
                    <label>
                        Token of --token{" "}
                        <input
                            type="password"
                            autocomplete="off"
                            onInput={(event) => (client.token = event.currentTarget.value)}
                        />
                    </label>{" "}
                    <button type="submit">Go on</button>
                </form>
            ) : problem ? (
                <p>{problem.status === 0 ? "Trying again every second." : problem.message}</p>
            ) : null}
        </main>
    );
}
