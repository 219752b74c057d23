// Puts the widget into a page that has an element with the id `widget`.

import { createRoot } from 'react-dom/client'

import './widget.css'
import { Widget } from './Widget.tsx'

createRoot(document.getElementById('widget')!).render(<Widget />)
