import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

export default defineConfig({
  plugins: [react()],
  // `npm run dev` serves the page and passes its requests on to the agent.
  server: { proxy: { '/api': 'http://localhost:8080' } },
  // Names without a hash, which ../src/routes.ts serves.
  build: {
    rolldownOptions: {
      output: { entryFileNames: 'widget.js', assetFileNames: 'widget.[ext]' },
    },
  },
})
