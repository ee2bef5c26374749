// A client that is made from the description of the API: one function for each operation.
//
//     node client.mjs http://127.0.0.1:8081
//
// It creates a job, reads it until it has ended, and prints its status and its result.

const base = process.argv[2] ?? "http://127.0.0.1:8081";
const headers = process.env.TOKEN ? { Authorization: `Bearer ${process.env.TOKEN}` } : {};

const description = await (await fetch(`${base}/openapi.json`, { headers })).json();
const client = {};
for (const [path, operations] of Object.entries(description.paths)) {
  for (const [method, operation] of Object.entries(operations)) {
    const name = operation.operationId; // for example create_job
    const parameters = operation.parameters ?? [];
    client[name] = async (given = {}, body = undefined) => {
      let target = path;
      const query = new URLSearchParams();
      const extra = {};
      for (const { name: key, in: place } of parameters) {
        if (given[key] === undefined) continue;
        if (place === "path") target = target.replace(`{${key}}`, given[key]);
        if (place === "query") query.set(key, given[key]);
        if (place === "header") extra[key] = given[key];
      }
      const answer = await fetch(`${base}${target}?${query}`, {
        method: method.toUpperCase(),
        headers: { ...headers, ...extra, "Content-Type": "application/json" },
        body: operation.requestBody ? JSON.stringify(body) : undefined,
      });
      const document = await answer.json();
      if (answer.status >= 400) throw new Error(`${answer.status} ${document.error}`);
      return document;
    };
  }
}

const key = `client-${process.pid}-${Date.now()}`;
const wanted = { type: "resize", payload: { width: 640 }, workflow: "javascript", run: 1 };
const job = await client.create_job({ "idempotency-key": key }, wanted);
const again = await client.create_job({ "idempotency-key": key }, wanted);
if (again._id !== job._id) throw new Error("one key created two jobs");
let document = job;
while (document.execution.ended === null) {
  document = await client.get_job({ id: job._id });
}
const { jobs } = await client.get_jobs({ limit: 1000, type: "resize" });
if (!jobs.some((one) => one._id === job._id)) throw new Error("the list lacks the job");
try {
  await client.create_job({}, { payload: 1 });
  throw new Error("a job without a type was created");
} catch (error) {
  if (!error.message.startsWith("400 type")) throw error;
}
console.log(JSON.stringify({ status: document.status, result: document.result }));
