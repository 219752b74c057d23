// AWS's own client for JavaScript: one event, what is recalled of it, and all events in pages.
import {
  BedrockAgentCoreClient,
  CreateEventCommand,
  paginateListEvents,
  RetrieveMemoryRecordsCommand,
} from "@aws-sdk/client-bedrock-agentcore";

const memoryId = process.argv[2];
const client = new BedrockAgentCoreClient({});
const where = { memoryId, actorId: "team/alice:dev", sessionId: "s1" };

const say = (text, at) =>
  client.send(
    new CreateEventCommand({
      ...where,
      eventTimestamp: new Date(at),
      payload: [{ conversational: { role: "USER", content: { text } } }],
    }),
  );

const times = [];
for (let n = 0; n < 3; n += 1) {
  times.push((await say(`My cat no. ${n} is called Miso`, 1767323045678 + n)).event.eventTimestamp);
}
const retrieved = await client.send(
  new RetrieveMemoryRecordsCommand({
    memoryId,
    namespacePath: "/users/team/alice:dev",
    searchCriteria: { searchQuery: "cat 1", topK: 1 },
  }),
);
const texts = [];
for await (const page of paginateListEvents({ client, pageSize: 2 }, where)) {
  texts.push(page.events.map((event) => event.payload[0].conversational.content.text));
}
const refused = await say("", 0).catch((error) => [error.name, error.$metadata.httpStatusCode]);
const [record] = retrieved.memoryRecordSummaries;
console.log(JSON.stringify({ times, record: record.content.text, texts, refused }));
